// Poller: one epoll set, level-triggered, whose time spent waiting is known.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "clock.h"
#include "os/fd.h"

namespace tlsproxy::load {

class Poller {
 public:
  static base::Result<Poller> make();

  // `interest` is a set of EPOLLIN and EPOLLOUT, `tag` comes back with the events. False: errno says
  // why. A descriptor leaves the set when it is closed.
  bool add(int fd, std::uint64_t tag, std::uint32_t interest);
  bool change(int fd, std::uint64_t tag, std::uint32_t interest);
  void remove(int fd);

  // Waits until something happens, at most until `deadline`. What it returns is valid until the next
  // call, and empty when the deadline came first.
  std::span<const epoll_event> wait(Nanoseconds deadline);

  // The instant at which wait() returned last.
  [[nodiscard]] Nanoseconds woken() const { return woken_; }

  // All time spent in wait() so far.
  [[nodiscard]] Nanoseconds waited() const { return waited_; }

 private:
  explicit Poller(os::Fd fd) : fd_(std::move(fd)) {}

  os::Fd fd_;
  std::array<epoll_event, 256> events_{};
  Nanoseconds woken_ = 0;
  Nanoseconds waited_ = 0;
};

}  // namespace tlsproxy::load
