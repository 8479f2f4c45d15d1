// Channel: a non-blocking socket to the subject, with or without TLS on it.
//
// A call that cannot go on says blocked; wants_write() then tells whether it waits for room to write.
// After failed, cause() says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "failure.h"
#include "os/address.h"
#include "os/fd.h"
#include "tls_client.h"

namespace tlsproxy::load {

enum class Step { done, blocked, ended, failed };

class Channel {
 public:
  struct Moved {
    Step step;
    std::size_t bytes;  // 0 unless done
  };

  // Begins to connect, from `source` unless that has no address. Done or blocked; finish_connect() is
  // to be called once the socket can be written to.
  Step connect(const os::SocketAddress& to, const os::SocketAddress& source);
  Step finish_connect();

  // Puts TLS on it, and goes through the handshake as far as it gets.
  void secure(SslPtr ssl) { ssl_ = std::move(ssl); }
  Step handshake();

  Moved read(std::span<std::uint8_t> into);

  // Under TLS a write that was blocked has to be repeated with the same length, and what was written may
  // wait in a buffer for flush().
  Moved write(std::span<const std::uint8_t> bytes);
  Step flush();

  // After a read of `size` bytes into a buffer of `room`: whether another may bring more without an event.
  [[nodiscard]] bool may_have_more(std::size_t size, std::size_t room) const;

  // Whether OpenSSL holds bytes that no event will tell of.
  [[nodiscard]] bool has_buffered() const { return ssl_ && SSL_has_pending(ssl_.get()) == 1; }

  // Says that no more will come: close_notify and FIN. Then drain() drops what still comes, until ended.
  void say_end();
  Step drain(std::span<std::uint8_t> scratch);

  // Closes the socket, with RST when `abort`.
  void close(bool abort);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] SSL* ssl() const { return ssl_.get(); }
  [[nodiscard]] bool wants_write() const { return wants_write_; }
  [[nodiscard]] Cause cause() const { return cause_; }

 private:
  Step fail(Cause cause);
  Step system_step(int error);
  Step tls_step(int result);

  os::Fd fd_;
  SslPtr ssl_;
  bool wants_write_ = false;
  bool unflushed_ = false;
  Cause cause_ = Cause::other;
};

}  // namespace tlsproxy::load
