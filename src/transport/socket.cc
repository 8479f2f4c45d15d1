#include "transport/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "os/syscalls.h"

namespace tlsproxy::transport {
namespace {

IoResult classify(int error) {
  switch (error) {
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
    case EADDRNOTAVAIL:
      return {IoStatus::failed, 0, error};
    default:
      return {IoStatus::reset, 0, error};
  }
}

// A read of this size is bulk: more like it follow, and are worth a setsockopt.
constexpr std::size_t kBulkRead = 32U * 1024;

void set_option(int fd, int level, int option, int value) {
  // Cannot fail on a TCP socket that we hold; on a unix one it does, and does not matter.
  static_cast<void>(::setsockopt(fd, level, option, &value, sizeof(value)));
}

}  // namespace

void Socket::adopt(os::Fd fd) {
  forget();
  fd_ = std::move(fd);
  readable_ = writable_ = true;
}

IoResult Socket::connect(const os::SocketAddress& address) {
  TLSPROXY_DCHECK(!is_open(), "a socket connects once");
  const int fd = os::syscalls().socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return classify(errno);
  forget();
  fd_.reset(fd);
  if (address.is_ip()) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  }
  if (os::syscalls().connect(fd, address.data(), address.size()) == 0) {
    readable_ = writable_ = true;
    return IoResult::done();
  }
  // EINTR leaves a connect that goes on by itself (connect(2)). A unix socket says EAGAIN for a full
  // backlog, and no event will tell when that changes: a failure.
  if (errno == EINPROGRESS || errno == EINTR) {
    connecting_ = true;
    return IoResult::done();
  }
  const IoResult result = classify(errno);
  close();
  return result;
}

IoResult Socket::finish_connect() {
  if (!connecting_) return IoResult::done();
  if (!writable_) return IoResult::blocked();
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return classify(error);
  connecting_ = false;
  return IoResult::done();
}

void Socket::note(bool readable, bool writable, bool hangup) {
  readable_ = readable_ || readable || hangup;
  writable_ = writable_ || writable;
  hangup_ = hangup_ || hangup;
}

IoResult Socket::read(std::span<std::byte> room) {
  TLSPROXY_DCHECK(!room.empty(), "a read has room");
  for (;;) {
    constexpr int kUntold = -1;
    int left = kUntold;
    const ssize_t got = told_what_is_left_
                            ? os::syscalls().recv_and_left(fd(), room.data(), room.size(), &left)
                            : os::syscalls().recv(fd(), room.data(), room.size(), 0);
    if (got > 0) {
      const auto bytes = static_cast<std::size_t>(got);
      const bool drained = left == kUntold ? bytes < room.size() : left == 0;
      if (drained && !hangup_) readable_ = false;
      if (!drained && !asked_what_is_left_ && bytes >= kBulkRead) ask_what_is_left();
      return IoResult::moved(bytes);
    }
    if (got == 0) return {IoStatus::end, 0, 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      readable_ = false;
      return IoResult::blocked();
    }
    return classify(errno);
  }
}

IoResult Socket::write(std::span<const std::byte> data, Then then) {
  TLSPROXY_DCHECK(!data.empty(), "a write has bytes");
  const int flags = MSG_NOSIGNAL | (then == Then::shutdown ? MSG_MORE : 0);
  for (;;) {
    const ssize_t sent = os::syscalls().send(fd(), data.data(), data.size(), flags);
    if (sent >= 0) {
      const auto bytes = static_cast<std::size_t>(sent);
      if (bytes < data.size()) writable_ = false;
      return IoResult::moved(bytes);
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      writable_ = false;
      return IoResult::blocked();
    }
    return classify(errno);
  }
}

IoResult Socket::splice_to(int pipe, std::size_t most) {
  for (;;) {
    const ssize_t moved = os::syscalls().splice(fd(), pipe, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (moved > 0) return IoResult::moved(static_cast<std::size_t>(moved));
    if (moved == 0) return {IoStatus::end, 0, 0};
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      readable_ = false;
      return IoResult::blocked();
    }
    return classify(errno);
  }
}

IoResult Socket::splice_from(int pipe, std::size_t most) {
  for (;;) {
    const ssize_t moved = os::syscalls().splice(pipe, fd(), most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (moved > 0) return IoResult::moved(static_cast<std::size_t>(moved));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN) {
      writable_ = false;
      return IoResult::blocked();
    }
    // A pipe that holds bytes cannot be at its end.
    return classify(moved == 0 ? EPIPE : errno);
  }
}

void Socket::shutdown_write() {
  // Fails only when the connection is gone already, which the next read tells.
  static_cast<void>(os::syscalls().shutdown(fd(), SHUT_WR));
}

os::SocketAddress Socket::local_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return os::SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&address), length);
}

std::size_t Socket::unacknowledged() const {
  int bytes = 0;
  if (::ioctl(fd(), SIOCOUTQ, &bytes) != 0 || bytes < 0) return 0;
  return static_cast<std::size_t>(bytes);
}

void Socket::ask_what_is_left() {
  const int on = 1;
  asked_what_is_left_ = true;
  told_what_is_left_ = ::setsockopt(fd(), IPPROTO_TCP, TCP_INQ, &on, sizeof(on)) == 0;  // not on unix sockets
}

void Socket::close() {
  fd_.reset();
  forget();
}

void Socket::forget() {
  connecting_ = readable_ = writable_ = hangup_ = asked_what_is_left_ = told_what_is_left_ = false;
}

void Socket::close_with_reset() {
  const linger no_wait{1, 0};
  static_cast<void>(::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &no_wait, sizeof(no_wait)));
  close();
}

}  // namespace tlsproxy::transport
