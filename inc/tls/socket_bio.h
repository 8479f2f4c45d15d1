// SocketBio: what OpenSSL reads from and writes to, over one Socket.
//
//   read:  Socket --one recv--> input block --record by record--> OpenSSL      (reads ahead)
//   write: OpenSSL --record by record--> output block --one send--> Socket     (gathers)
//
// So several records cost one system call, in either direction, and whatever one turn produces (a
// handshake flight, an answer with the alert after it) leaves in one send. The input may start with bytes
// that were read before there was a TLS object (the ClientHello). Both blocks come from the pool and are
// held only while bytes are in them.
#pragma once

#include <openssl/bio.h>

#include <cstddef>
#include <span>

#include "buffer/block_pool.h"
#include "buffer/relay_buffer.h"
#include "tls/traffic_key.h"
#include "transport/io_result.h"
#include "transport/socket.h"

namespace tlsproxy::tls {

class SocketBio {
 public:
  // Both must outlive it, and it must outlive the BIO it makes; it does not move.
  SocketBio(transport::Socket& socket, buffer::BlockPool& pool) : socket_(&socket), pool_(&pool) {}
  SocketBio(const SocketBio&) = delete;
  SocketBio& operator=(const SocketBio&) = delete;
  ~SocketBio();

  // A BIO for SSL_set_bio, which owns it from then on. Null when there is no memory.
  BIO* make_bio();

  // Bytes already received, to be read before any other.
  void replay(buffer::RelayBuffer&& received) { input_ = static_cast<buffer::RelayBuffer&&>(received); }

  // Prepares to gather the records of up to `plaintext` bytes; false when the pool gives no block at all.
  // The output must be empty. Returns how many bytes of plaintext fit through `fits`.
  bool reserve(std::size_t plaintext, std::size_t& fits);

  // --- for records that are read and made without OpenSSL ---

  // What was received and not consumed, from a record's first byte on.
  [[nodiscard]] std::span<std::byte> input() { return input_.pending_to_change(); }
  [[nodiscard]] std::span<const std::byte> input() const { return input_.pending(); }
  // Whether the pool's largest block holds the largest record: not with sizes forced for tests.
  [[nodiscard]] bool holds_any_record() const {
    return pool_->capacity(buffer::BlockSize::large) + buffer::BlockPool::kFraming >=
           kRecordHeader + kLargestPayload;
  }
  // One read behind that; `whole`: the size of the record it begins, whose bytes are brought together.
  transport::IoResult fill(std::size_t whole);
  void consume(std::size_t bytes);

  // Where `bytes` more of output go; null while what was gathered before leaves no room (flush() first, with
  // some backlog) or the pool gives no block.
  std::byte* place_output(std::size_t bytes);
  void commit_output(std::size_t bytes) { out_tail_ += static_cast<std::uint32_t>(bytes); }

  // Sends what was gathered: ok when all is out, would_block while some is left, else what broke.
  transport::IoResult flush(transport::Socket::Then then = transport::Socket::Then::anything);

  [[nodiscard]] bool has_output() const { return out_head_ < out_tail_; }
  [[nodiscard]] bool has_input() const { return !input_.empty(); }
  [[nodiscard]] bool reads_in_bulk() const { return input_.wish() != buffer::BlockSize::small; }

  // What the socket said when OpenSSL last asked for bytes and got none.
  [[nodiscard]] transport::IoResult last_read() const { return last_read_; }
  void forget_last_read() { last_read_ = transport::IoResult::blocked(); }

  // Whether a block was refused since the last call.
  [[nodiscard]] bool take_starved();

  // After our FIN nothing can be sent: what OpenSSL still writes (a KeyUpdate's answer) is dropped.
  void drop_output_from_now() { drop_output_ = true; }

 private:
  static int on_read(BIO* bio, char* data, std::size_t size, std::size_t* got);
  static int on_write(BIO* bio, const char* data, std::size_t size, std::size_t* written);
  static long on_control(BIO* bio, int command, long number, void* pointer);
  static const BIO_METHOD* method();

  bool take_output_block(buffer::BlockSize size);
  [[nodiscard]] std::size_t output_room() const;

  transport::Socket* socket_;
  buffer::BlockPool* pool_;
  buffer::RelayBuffer input_;
  buffer::Block output_;
  std::uint32_t out_head_ = 0;
  std::uint32_t out_tail_ = 0;
  transport::IoResult last_read_;
  bool starved_ = false;
  bool drop_output_ = false;
};

}  // namespace tlsproxy::tls
