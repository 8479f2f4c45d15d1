// Trust: who may vouch for a peer (a CA bundle), and what was revoked (CRLs).
//
// Every certificate of the bundle is a trust anchor, an intermediate too: the path of a peer's
// certificate may end there, with no root in sight (X509_V_FLAG_PARTIAL_CHAIN).
//
// When a CRL is given, every certificate between the peer and its anchor is looked up (RFC 5280, 6.3),
// and one whose issuer has no valid CRL is rejected: closed is safe. The anchor itself is not: it is
// trusted because the operator listed it, and the CRL that could name it is its issuer's, who may be
// unknown here. But an anchor that one of the given CRLs does revoke is dropped when they are loaded.
//
//   trust          CRLs of              peer sends              outcome
//   intermediate   intermediate         leaf                    revoked leaves out, others in
//   root           root, intermediate   leaf, intermediate      revoked leaves out, others in
//   root           intermediate         leaf, intermediate      all out: unable to get certificate CRL
//   root           any                  leaf alone              all out: unable to get local issuer
//   certificate any            expired              any                     all it covers out: CRL has
//   expired
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/model.h"
#include "tls/loading.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {

class Trust {
 public:
  // Reports, and returns null, what is unreadable, malformed or empty, and a CRL whose signature is not
  // that of the listed CA it names. Warned of, since such files reject peers and let none in: an expired
  // or not yet valid CRL or CA, a listed CA without a CRL when there are any. A `ca` without a place in
  // the configuration is the system's bundle, whose single entries are nobody's concern here.
  static std::unique_ptr<Trust> load(const config::Text& ca, const std::vector<config::Text>& crls,
                                     Loading& loading);

  // Peers of `context` must have a path of at most `depth` intermediates to an anchor.
  void install(SSL_CTX* context, int depth) const;

  // Makes the server's `context` tell clients the names of the anchors. Returns false, and tells none
  // (clients then choose by themselves), when they do not fit into a CertificateRequest.
  bool announce(SSL_CTX* context) const;

  // SHA-256 over all that was read: two Trusts with the same digest decide alike.
  [[nodiscard]] const std::string& digest() const { return digest_; }

 private:
  Trust() = default;

  StorePtr store_;
  NamesPtr names_;
  std::string digest_;
};

}  // namespace tlsproxy::tls
