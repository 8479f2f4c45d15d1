// A TLS handshake in memory: two SSL objects joined by a pair of BIOs, no socket.
#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <string>

#include "support/certificates.h"

namespace tlsproxy::test {

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPtr = std::unique_ptr<SSL, SslFree>;

struct SslContextFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslContextPtr = std::unique_ptr<SSL_CTX, SslContextFree>;

struct SessionFree {
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using SessionPtr = std::unique_ptr<SSL_SESSION, SessionFree>;

// A client that takes any server, as a peer of the contexts under test.
SslContextPtr make_client_context();
// A server that shows `certificate`.
SslContextPtr make_server_context(const Issued& certificate);

// What came of a handshake. Both ends stay usable as long as this lives.
struct Handshake {
  SslPtr client;
  SslPtr server;
  bool client_done = false;
  bool server_done = false;
  std::string client_error{};  // OpenSSL's first reason on that side; empty without one
  std::string server_error{};

  // Both sides agree that it succeeded.
  [[nodiscard]] bool done() const { return client_done && server_done; }
};

// Runs it to its end. `prepare` may set up the client's SSL before its first message.
Handshake shake_hands(SSL_CTX* client, SSL_CTX* server, const std::function<void(SSL*)>& prepare = {});

// The common name of the certificate the peer of `ssl` showed; empty without one.
std::string peer_common_name(const SSL* ssl);

}  // namespace tlsproxy::test
