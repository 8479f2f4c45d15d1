// Socket: a connected stream socket with the two ready bits of edge-triggered I/O.
//
//            | set by                  | cleared by
//   readable | an edge from the loop   | EAGAIN, a read shorter than asked, or one that the kernel says was
//   all writable | an edge from the loop   | EAGAIN, or a write shorter than asked
//
// A short read means drained, so that no read is spent on seeing EAGAIN. The exception is a peer that has
// ended its direction: its FIN may have come with the data and gives no second edge, so from the hangup on
// reads go on until they return the end. A short write sets the kernel's own "wants space" mark and is
// followed by an edge, just as EAGAIN is (tcp_sendmsg). A read as long as asked leaves the question open:
// from the first large one on, the kernel is asked to answer it with each read (TCP_INQ).
//
// All traffic of every transport goes through here, TLS too: so readiness, errors and injected faults
// exist once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "os/address.h"
#include "os/fd.h"
#include "transport/io_result.h"

namespace tlsproxy::transport {

class Socket {
 public:
  Socket() = default;

  // Takes an accepted, non-blocking socket: both bits start set, the first try tells.
  void adopt(os::Fd fd);

  // Starts a non-blocking connect. Ok: connected or on its way, is_connecting() tells. Otherwise failed
  // or reset with errno in `error`, and no socket is held.
  IoResult connect(const os::SocketAddress& address);

  // After connect(), once may_write(): ok when connected, would_block while not, else what became of it.
  IoResult finish_connect();

  [[nodiscard]] bool is_open() const { return static_cast<bool>(fd_); }
  [[nodiscard]] bool is_connecting() const { return connecting_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // News from the loop.
  void note(bool readable, bool writable, bool hangup);

  [[nodiscard]] bool may_read() const { return readable_; }
  [[nodiscard]] bool may_write() const { return writable_; }

  // What follows a write at once: the end of our direction can then leave in one segment with it.
  enum class Then : std::uint8_t { anything, shutdown };

  // ok, would_block, end, reset or failed. `room` and `data` must not be empty.
  IoResult read(std::span<std::byte> room);
  IoResult write(std::span<const std::byte> data, Then then = Then::anything);

  // Moves bytes between this socket and a pipe inside the kernel, at most `most`. The pipe is empty before
  // splice_to, and holds `most` bytes before splice_from. A short count tells nothing about what is left, so
  // only would_block clears a ready bit. Results as of read() and write().
  IoResult splice_to(int pipe, std::size_t most);
  IoResult splice_from(int pipe, std::size_t most);

  // Ends our direction (FIN). Reading goes on.
  void shutdown_write();

  // The address of our end; without family when unknown.
  [[nodiscard]] os::SocketAddress local_address() const;

  // Bytes that the peer's kernel has not acknowledged yet; 0 when unknown.
  [[nodiscard]] std::size_t unacknowledged() const;

  // Closes; the peer sees FIN (or RST if it sent what nobody read).
  void close();

  // Closes with RST, dropping what was not sent.
  void close_with_reset();

 private:
  void forget();
  void ask_what_is_left();

  os::Fd fd_;
  bool connecting_ : 1 = false;
  bool readable_ : 1 = false;
  bool writable_ : 1 = false;
  bool hangup_ : 1 = false;
  bool asked_what_is_left_ : 1 = false;
  bool told_what_is_left_ : 1 = false;
};

}  // namespace tlsproxy::transport
