#include "support/faults.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace tlsproxy::support {
namespace {

Faults* in_use = nullptr;

}  // namespace

Faults::Faults() {
  in_use = this;
  os::syscalls() = {&on_socket, &on_connect, &on_accept4,  &on_recv, &on_recv_and_left,
                    &on_send,   &on_splice,  &on_shutdown, &on_close};
}

Faults::~Faults() {
  os::syscalls() = os::kernel_syscalls();
  in_use = nullptr;
}

Faults& Faults::current() {
  return *in_use;
}

std::uint64_t Faults::randomize(std::uint64_t seed, const Odds& odds) {
  if (const char* given = std::getenv("TLSPROXY_FAULT_SEED")) seed = std::strtoull(given, nullptr, 10);
  random_.seed(seed);
  odds_ = odds;
  return seed;
}

bool Faults::draw(int per_mille) {
  return static_cast<int>(random_() % 1000) < per_mille;
}

Outcome Faults::next(std::deque<Outcome>& script, bool sends) {
  if (!script.empty()) {
    const Outcome outcome = script.front();
    script.pop_front();
    return outcome;
  }
  if (!odds_) return {};
  if (draw(odds_->interrupted)) return fails(EINTR);
  if (draw(odds_->again)) return fails(EAGAIN);
  if (draw(odds_->reset)) return fails(ECONNRESET);
  if (sends && draw(odds_->no_buffer)) return fails(ENOBUFS);
  if (draw(odds_->short_io)) return moves(1 + random_() % 700);
  return {};
}

int Faults::on_socket(int domain, int type, int protocol) {
  ++current().counts_.socket;
  const Outcome outcome = current().socket.empty() ? Outcome{} : current().next(current().socket, false);
  if (outcome.error != 0) return errno = outcome.error, -1;
  return os::kernel_syscalls().socket(domain, type, protocol);
}

int Faults::on_connect(int fd, const sockaddr* address, socklen_t length) {
  ++current().counts_.connect;
  const Outcome outcome = current().connect.empty() ? Outcome{} : current().next(current().connect, false);
  if (outcome.error != 0) return errno = outcome.error, -1;
  return os::kernel_syscalls().connect(fd, address, length);
}

int Faults::on_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  ++current().counts_.accept4;
  const Outcome outcome = current().accept4.empty() ? Outcome{} : current().next(current().accept4, false);
  if (outcome.error != 0) return errno = outcome.error, -1;
  return os::kernel_syscalls().accept4(fd, address, length, flags);
}

ssize_t Faults::on_recv(int fd, void* data, std::size_t size, int flags) {
  ++current().counts_.recv;
  const Outcome outcome = current().next(current().recv, false);
  if (outcome.error != 0) return errno = outcome.error, -1;
  return os::kernel_syscalls().recv(fd, data, std::min(size, outcome.at_most.value_or(size)), flags);
}

ssize_t Faults::on_recv_and_left(int fd, void* data, std::size_t size, int* left) {
  ++current().counts_.recv;
  const Outcome outcome = current().next(current().recv, false);
  if (outcome.error != 0) return errno = outcome.error, -1;
  return os::kernel_syscalls().recv_and_left(fd, data, std::min(size, outcome.at_most.value_or(size)), left);
}

ssize_t Faults::on_send(int fd, const void* data, std::size_t size, int flags) {
  ++current().counts_.send;
  const Outcome outcome = current().next(current().send, true);
  if (outcome.error != 0) return errno = outcome.error, -1;
  return os::kernel_syscalls().send(fd, data, std::min(size, outcome.at_most.value_or(size)), flags);
}

ssize_t Faults::on_splice(int from, int to, std::size_t size, unsigned flags) {
  ++current().counts_.splice;
  const Outcome outcome = current().next(current().splice, false);
  if (outcome.error != 0) return errno = outcome.error, -1;
  return os::kernel_syscalls().splice(from, to, std::min(size, outcome.at_most.value_or(size)), flags);
}

int Faults::on_shutdown(int fd, int how) {
  ++current().counts_.shutdown;
  return os::kernel_syscalls().shutdown(fd, how);
}

int Faults::on_close(int fd) {
  ++current().counts_.close;
  return os::kernel_syscalls().close(fd);
}

}  // namespace tlsproxy::support
