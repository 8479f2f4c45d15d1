// The TLS policies of a generation, as OpenSSL contexts made once and shared by its sessions.
//
// A listener that terminates TLS has one ServerContexts. Which context serves a connection is decided
// by the name in its ClientHello before any SSL object exists (the session reads the hello first), so
// version limits, ciphers, ALPN and client verification are those of that name from the first message
// on, and nothing of the default name's rules is left behind. OpenSSL's servername callback only checks
// that a second ClientHello names the same host (RFC 8446, 4.1.2); see Transport.
#pragma once

#include <openssl/ssl.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/diagnostics.h"
#include "config/files.h"
#include "config/model.h"
#include "tls/errors.h"

namespace tlsproxy::tls {

struct SslCtxFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslCtxPtr = std::unique_ptr<SSL_CTX, SslCtxFree>;

class ServerContexts {
 public:
  // Makes every context of `listener` (whose tls_mode is terminate). What is wrong is reported with
  // the listener's name, the file and OpenSSL's reason: unreadable or malformed files, a key that does
  // not match, a certificate that is not valid now, unusable cipher lists, an expired CRL (a warning:
  // it will reject every client it covers). Never prompts. Returns null when it reported an error.
  // `listener` must outlive the result.
  //
  // A session is resumed only by the context that made it (RFC 6066, 3, forbids to carry one over to
  // another name): the session id context is a digest of the listener's name, the policy's names and
  // client verification with the CA and CRL bytes, and the certificates. So a client never gets in under
  // another name's rules or an older CRL.
  static std::unique_ptr<ServerContexts> make(const config::Listener& listener, config::FileSource& files,
                                              config::Diagnostics& diagnostics);

  struct Choice {
    SSL_CTX* context;
    const config::TlsPolicy* policy;
  };

  // The context for a name (lower case; empty when the client sent none): the host policy with that
  // exact name, else with the wildcard of one label that covers it, else the listener's own; in it the
  // certificates whose names cover it, again exact before wildcard, else the policy's first ones.
  [[nodiscard]] Choice choose(std::string_view sni) const;

 private:
  // Certificates are grouped by the names they cover; each group a client can reach has one context.
  struct Policy {
    const config::TlsPolicy* policy = nullptr;
    std::map<std::string, SSL_CTX*, std::less<>> by_name;  // exact and "*.suffix"
    SSL_CTX* fallback = nullptr;
    std::vector<SslCtxPtr> contexts;
  };
  class Builder;

  Policy default_policy_;
  std::vector<std::unique_ptr<Policy>> host_policies_;
  std::map<std::string, const Policy*, std::less<>> policy_by_name_;
};

// TLS towards the servers of one backend.
class ClientContext {
 public:
  // Same promises as ServerContexts::make. Without `ca`, and unless verification is off, the system's
  // bundle is used: the file named by SSL_CERT_FILE, else the one of Debian's ca-certificates.
  // `backend` (whose `tls` is present) must outlive the result.
  static std::unique_ptr<ClientContext> make(const config::Backend& backend, config::FileSource& files,
                                             config::Diagnostics& diagnostics);

  [[nodiscard]] SSL_CTX* get() const { return context_.get(); }
  [[nodiscard]] const config::ClientTls& policy() const { return *policy_; }

  // The name that `server` must prove and, unless it is an IP address, is asked for by SNI: server_name,
  // else the server's host name or IP address. Empty only for a unix socket without server_name, which
  // make() refuses unless verification is off.
  [[nodiscard]] std::string expected_name(const config::Server& server) const;

 private:
  SslCtxPtr context_;
  const config::ClientTls* policy_ = nullptr;
};

// A certificate for local trials, as PEM chain followed by its key: ECDSA P-256, valid from an hour
// ago for 30 days, for `localhost`, loopback addresses and, when it is a host name, `common_name`.
base::Result<std::string> make_self_signed(const std::string& common_name);

}  // namespace tlsproxy::tls
