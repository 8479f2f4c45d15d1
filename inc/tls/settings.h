// The settings that both sides of TLS have in common, as a policy of either kind states them.
#pragma once

#include <string>
#include <vector>

#include "config/model.h"
#include "tls/loading.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {

// What every context of the proxy has, whatever its policy: no renegotiation, no compression, a missing
// close_notify is an error, a write may be taken in part. Sessions are resumed by tickets only.
void apply_common(SSL_CTX* context);

// A view of a policy's protocol limits; the policy must outlive it.
struct ProtocolLimits {
  config::TlsVersion min_version;
  config::TlsVersion max_version;
  const config::Text& ciphers;       // empty: OpenSSL's
  const config::Text& ciphersuites;  // likewise
  const config::Text& groups;        // likewise
  config::Mark mark;                 // of the policy

  template <class Policy>
  static ProtocolLimits of(const Policy& policy, config::Mark mark) {
    return {policy.min_version, policy.max_version, policy.ciphers, policy.ciphersuites, policy.groups, mark};
  }
};

// Sets versions, ciphers and groups; reports those that OpenSSL does not know or cannot use.
void apply_limits(const ProtocolLimits& limits, SSL_CTX* context, Loading& loading);

// TLS 1.0 and 1.1 need SHA-1 signatures, which OpenSSL 3 has at security level 0 only. Lowers it when,
// and only when, the limits ask for such a version and the cipher list does not set a level itself.
// To be called after certificates were installed, so that those are still judged by the usual level.
void allow_old_versions(const ProtocolLimits& limits, SSL_CTX* context, Loading& loading);

// Reports protocol names that cannot be sent (RFC 7301, 3.1: 1 to 255 bytes each).
void check_alpn(const std::vector<config::Text>& alpn, Loading& loading);

// The names in the form of the ALPN extension, each behind its length.
std::string alpn_wire_form(const std::vector<config::Text>& alpn);

}  // namespace tlsproxy::tls
