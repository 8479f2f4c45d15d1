// TLS for tests: a server context with a fresh self-signed certificate, a client context that trusts
// anything, and a transport over each end of a connection.
#pragma once

#include <openssl/ssl.h>

#include <memory>

#include "buffer/block_pool.h"
#include "os/fd.h"
#include "relay/leg.h"
#include "tls/context.h"
#include "tls/transport.h"

namespace tlsproxy::support {

tls::SslCtxPtr server_context();
tls::SslCtxPtr client_context();

// One end of a TLS connection with its socket.
struct TlsEnd {
  transport::Socket socket;
  tls::Transport transport;
  explicit TlsEnd(buffer::BlockPool& pool) : transport(socket, pool) {}
};

// Both ends, after a complete handshake over `ends`.
struct TlsPair {
  tls::SslCtxPtr server_ctx = server_context();
  tls::SslCtxPtr client_ctx = client_context();
  TlsEnd server;
  TlsEnd client;
  // `settle`: both let go of OpenSSL then.
  explicit TlsPair(buffer::BlockPool& pool, bool shake_hands = true, bool settle = false);
  // Runs both handshakes as far as they go; true when both are complete.
  bool shake_hands();
};

}  // namespace tlsproxy::support
