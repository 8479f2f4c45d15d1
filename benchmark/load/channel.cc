#include "channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <cerrno>

namespace tlsproxy::load {
namespace {

constexpr std::size_t kLargestRecord = std::size_t{16} * 1024;

Cause cause_of_connect(int error) {
  switch (error) {
    case EADDRNOTAVAIL:
    case EADDRINUSE:
      return Cause::ports;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return Cause::other;
    default:
      return Cause::connect;
  }
}

void set_option(int fd, int level, int option) {
  const int on = 1;
  ::setsockopt(fd, level, option, &on, sizeof(on));
}

}  // namespace

Step Channel::fail(Cause cause) {
  cause_ = cause;
  return Step::failed;
}

Step Channel::connect(const os::SocketAddress& to, const os::SocketAddress& source) {
  wants_write_ = false;
  unflushed_ = false;
  fd_.reset(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return fail(cause_of_connect(errno));
  if (to.is_ip()) set_option(fd_.get(), IPPROTO_TCP, TCP_NODELAY);
  if (source.is_ip()) {
    // The port is chosen at connect, when the other end is known: one port serves several destinations.
    set_option(fd_.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT);
    if (::bind(fd_.get(), source.data(), source.size()) != 0) return fail(cause_of_connect(errno));
  }
  if (::connect(fd_.get(), to.data(), to.size()) == 0) return Step::done;
  if (errno != EINPROGRESS) return fail(cause_of_connect(errno));
  wants_write_ = true;
  return Step::blocked;
}

Step Channel::finish_connect() {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return fail(cause_of_connect(error));
  wants_write_ = false;
  return Step::done;
}

Step Channel::handshake() {
  if (!ssl_) return Step::done;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  wants_write_ = false;
  if (result == 1) return Step::done;
  const Step step = tls_step(result);
  return step == Step::blocked ? step : fail(Cause::handshake);
}

Channel::Moved Channel::read(std::span<std::uint8_t> into) {
  if (!ssl_) {
    const ssize_t size = ::recv(fd_.get(), into.data(), into.size(), 0);
    if (size > 0) return {Step::done, static_cast<std::size_t>(size)};
    return {size == 0 ? Step::ended : system_step(errno), 0};
  }
  std::size_t size = 0;
  ERR_clear_error();
  const int result = SSL_read_ex(ssl_.get(), into.data(), into.size(), &size);
  if (result == 1) return {Step::done, size};
  return {tls_step(result), 0};
}

Channel::Moved Channel::write(std::span<const std::uint8_t> bytes) {
  wants_write_ = false;
  if (!ssl_) {
    const ssize_t size = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size >= 0) return {Step::done, static_cast<std::size_t>(size)};
    const Step step = system_step(errno);
    wants_write_ = step == Step::blocked;
    return {step, 0};
  }
  std::size_t size = 0;
  ERR_clear_error();
  const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &size);
  unflushed_ = true;
  if (result == 1) return {Step::done, size};
  return {tls_step(result), 0};
}

Step Channel::flush() {
  if (!unflushed_) return Step::done;
  wants_write_ = false;
  BIO* writer = SSL_get_wbio(ssl_.get());
  if (BIO_flush(writer) == 1) {
    unflushed_ = false;
    return Step::done;
  }
  if (!BIO_should_retry(writer)) return fail(Cause::reset);
  wants_write_ = true;
  return Step::blocked;
}

// A full read, or a full record, is rarely the last.
bool Channel::may_have_more(std::size_t size, std::size_t room) const {
  return ssl_ ? size >= kLargestRecord || has_buffered() : size == room;
}

void Channel::say_end() {
  if (ssl_) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    static_cast<void>(BIO_flush(SSL_get_wbio(ssl_.get())));
  }
  ::shutdown(fd_.get(), SHUT_WR);
  wants_write_ = false;
}

// Below TLS: what it means is of no interest any more.
Step Channel::drain(std::span<std::uint8_t> scratch) {
  const ssize_t size = ::recv(fd_.get(), scratch.data(), scratch.size(), 0);
  if (size > 0) return Step::done;
  return size == 0 ? Step::ended : system_step(errno);
}

void Channel::close(bool abort) {
  if (ssl_) SSL_set_shutdown(ssl_.get(), SSL_SENT_SHUTDOWN);  // or OpenSSL calls the session unusable
  if (abort && fd_) {
    const linger reset{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  ssl_.reset();
  fd_.reset();
}

Step Channel::system_step(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return Step::blocked;
  return fail(error == ECONNRESET || error == EPIPE ? Cause::reset : Cause::other);
}

Step Channel::tls_step(int result) {
  const int error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return Step::blocked;
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return Step::blocked;
    case SSL_ERROR_ZERO_RETURN:
      return Step::ended;
    case SSL_ERROR_SYSCALL:
      return fail(error == ECONNRESET || error == EPIPE ? Cause::reset : Cause::other);
    default:
      return fail(Cause::other);
  }
}

}  // namespace tlsproxy::load
