// TlsClient: the OpenSSL context of all connections, pinned to one version, suite and group, so that
// subjects are compared at the same work. It verifies nothing: that would be the generator's work.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace tlsproxy::load {

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
struct FreeSession {
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslPtr = std::unique_ptr<SSL, FreeSsl>;
using SessionPtr = std::unique_ptr<SSL_SESSION, FreeSession>;
using ContextPtr = std::unique_ptr<SSL_CTX, FreeContext>;

struct TlsOptions {
  bool is_1_3 = true;
  std::string suite;           // empty: TLS_AES_128_GCM_SHA256, for 1.2 ECDHE+AESGCM
  std::string group;           // empty: X25519, for 1.2 X25519:P-256
  std::string server_name;     // empty: none is sent
  bool takes_tickets = false;  // sessions are kept for resumption
  // Persistent connections that move much: 64 KiB are read and written at once, at the price of as much
  // memory for each connection. Otherwise an idle connection keeps no buffer.
  bool reads_ahead = false;
};

// What was negotiated.
struct TlsFacts {
  std::string version;
  std::string suite;
  std::string group;
};

class TlsClient {
 public:
  // Errors: a suite or group that OpenSSL does not know.
  static base::Result<TlsClient> make(const TlsOptions& options);

  // A client on the connected socket `fd`, which stays the caller's. It offers what `ticket` holds, if
  // anything, and puts the newest session it gets there; `ticket` lives as long as the result.
  // Null when memory is short.
  [[nodiscard]] SslPtr open(int fd, SessionPtr& ticket) const;

 private:
  TlsClient(const TlsOptions& options, ContextPtr context)
      : options_(options), context_(std::move(context)) {}

  TlsOptions options_;
  ContextPtr context_;
};

TlsFacts facts_of(SSL* ssl);

}  // namespace tlsproxy::load
