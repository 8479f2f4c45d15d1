#include "poller.h"

#include <algorithm>
#include <cerrno>

namespace tlsproxy::load {

base::Result<Poller> Poller::make() {
  os::Fd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd) return base::system_failure("epoll_create1", errno);
  // Since Linux 5.11; without it time-outs are whole milliseconds, too coarse for a schedule.
  epoll_event none{};
  const timespec at_once{};
  if (::epoll_pwait2(fd.get(), &none, 1, &at_once, nullptr) != 0) {
    return base::system_failure("epoll_pwait2", errno);
  }
  return Poller(std::move(fd));
}

bool Poller::add(int fd, std::uint64_t tag, std::uint32_t interest) {
  epoll_event event{};
  event.events = interest;
  event.data.u64 = tag;
  return ::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

bool Poller::change(int fd, std::uint64_t tag, std::uint32_t interest) {
  epoll_event event{};
  event.events = interest;
  event.data.u64 = tag;
  return ::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0;
}

void Poller::remove(int fd) {
  ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<const epoll_event> Poller::wait(Nanoseconds deadline) {
  const Nanoseconds begin = now();
  const Nanoseconds limit = std::max<Nanoseconds>(deadline - begin, 0);
  const timespec timeout{limit / kSecond, limit % kSecond};
  const int count =
      ::epoll_pwait2(fd_.get(), events_.data(), static_cast<int>(events_.size()), &timeout, nullptr);
  woken_ = now();
  waited_ += woken_ - begin;
  return {events_.data(), static_cast<std::size_t>(std::max(count, 0))};
}

}  // namespace tlsproxy::load
