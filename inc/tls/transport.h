// Transport: the four verbs over TLS, and the one place that interprets what SSL_get_error says.
//
// Ready bits under TLS: may_read() stays true until OpenSSL asked for more bytes than there are (WANT_READ),
// or holds none while the socket is drained. Plaintext may be left inside OpenSSL, and ciphertext in the
// read-ahead block, that no socket event will announce.
//
// write() never leaves OpenSSL with a half-written record: a record is made only when its ciphertext has
// room in the gathered output, so SSL_write needs no retry and its caller may move or free the bytes.
//
// OpenSSL does the handshake. After it, settle() lets go of OpenSSL's connection and carries on with the
// traffic secrets (RecordLayer), where the version and the suite allow it; nothing outside tells the
// difference.
#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "buffer/block_pool.h"
#include "buffer/relay_buffer.h"
#include "record/session_record.h"
#include "tls/provider.h"
#include "tls/record_layer.h"
#include "tls/socket_bio.h"
#include "transport/io_result.h"
#include "transport/socket.h"

namespace tlsproxy::tls {

class Transport {
 public:
  // Both must outlive it; it does not move.
  Transport(transport::Socket& socket, buffer::BlockPool& pool);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Prepares the server's side of a handshake. `received` are the client's bytes so far (at least its
  // ClientHello) and `name` the host they ask for, in lower case, empty for none: a later ClientHello of
  // the same handshake that names another one is refused (RFC 8446, 4.1.2). False: no memory.
  bool accept(SSL_CTX* context, buffer::RelayBuffer&& received, std::string_view name);

  // Prepares the client's side. `name` is what the peer must prove when `context` verifies; sent as SNI
  // unless it is an IP address (RFC 6066, 3). False: no memory.
  bool connect(SSL_CTX* context, const std::string& name);

  // ok when the handshake is complete and the peer verified by the context's policy.
  transport::IoResult handshake();

  // The handshake is over: lets go of what only it needs.
  void settle();
  // Whether OpenSSL still carries the connection.
  [[nodiscard]] bool uses_openssl() const { return ssl_ != nullptr; }

  [[nodiscard]] bool may_read() const {
    if (records_) return input_end_ || has_bytes_at_hand() || socket_->may_read();
    return !drained_ || socket_->may_read();
  }
  [[nodiscard]] bool may_write() const { return socket_->may_write(); }

  // Fills as much of `room` as there is plaintext for, over several records.
  transport::IoResult read(std::span<std::byte> room);

  // Takes as much as can be encrypted and gathered now. What it took may still be on its way: see
  // has_backlog(), and flush() when the socket is writable again.
  transport::IoResult write(std::span<const std::byte> data);
  transport::IoResult flush() { return bio_.flush(); }
  [[nodiscard]] bool has_backlog() const { return bio_.has_output(); }

  // The orderly end of our direction: close_notify after all data, then FIN. Call again on would_block.
  transport::IoResult shutdown() { return finish_output(true); }
  // The same without close_notify: the peer must not take what it got for complete.
  transport::IoResult shutdown_truncated() { return finish_output(false); }

  // Whether a block was refused since the last call: the caller waits for the pool, not for the socket.
  [[nodiscard]] bool take_starved() { return bio_.take_starved(); }

  // Whether OpenSSL holds record buffers (kept during bulk), and letting go of them.
  [[nodiscard]] bool is_warm() const { return warm_; }
  void cool();

  // Whether the last read() left bytes behind that no event will announce: plaintext inside OpenSSL, or
  // ciphertext in the read-ahead block.
  [[nodiscard]] bool has_bytes_at_hand() const;

  // --- facts, valid once the handshake is over ---
  [[nodiscard]] record::TlsFacts facts() const;
  [[nodiscard]] std::string_view alpn() const;
  [[nodiscard]] std::string peer_subject() const;  // RFC 2253; empty without a certificate
  // Why the peer's certificate was not accepted, in OpenSSL's words; empty when that was not the cause.
  [[nodiscard]] std::string verify_error() const;
  [[nodiscard]] bool name_changed() const { return name_changed_; }
  // The last fatal alert in either direction.
  struct Alert {
    std::string description;  // "unknown_ca"
    bool sent;
  };
  [[nodiscard]] const std::optional<Alert>& alert() const { return alert_; }

  // Makes every transport of a server context check the names of its hellos, as accept() says.
  static void watch_names(SSL_CTX* context);

 private:
  struct SslFree {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  // What is needed until settle() only.
  struct Greeting {
    std::string name;
    TrafficSecrets secrets;
    std::uint64_t records_written = 0;  // by the last SSL_do_handshake
    bool no_certificate = false;
  };
  // What OpenSSL's object told, once it is gone.
  struct Told {
    record::TlsFacts facts;
    std::string alpn;
    std::string peer_subject;
  };

  bool start(SSL_CTX* context);
  [[nodiscard]] bool may_hold_more() const;
  transport::IoResult classify(int returned);
  transport::IoResult finish_output(bool orderly);
  std::unique_ptr<RecordLayer> take_over() const;
  transport::IoResult read_records(std::span<std::byte> room);
  transport::IoResult write_records(std::span<const std::byte> data);
  transport::IoResult step_ended(const RecordLayer::Step& step);
  bool send_alert(AlertCode code);
  void note_alert(int value, bool sent);
  static void on_info(const SSL* ssl, int where, int value);
  static void on_message(int written, int version, int type, const void* data, std::size_t size, SSL* ssl,
                         void* me);
  static int on_server_name(SSL* ssl, int* alert, void* unused);

  transport::Socket* socket_;
  SocketBio bio_;                      // before ssl_, which uses it until freed
  std::unique_ptr<SSL, SslFree> ssl_;  // none once records_ has taken over
  std::unique_ptr<RecordLayer> records_;
  std::unique_ptr<Greeting> greeting_;
  Told told_;
  std::optional<Alert> alert_;
  std::optional<transport::IoResult> input_end_;  // read() repeats it for ever
  bool drained_ = false;
  bool broken_ = false;  // after a fatal error nothing more is said (RFC 8446, 6.2)
  bool notified_ = false;
  bool output_ended_ = false;
  bool name_changed_ = false;
  bool warm_ = false;
};

}  // namespace tlsproxy::tls
