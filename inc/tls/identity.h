// Identity: a certificate with its chain and private key, loaded and found usable.
//
// Who shows it to a peer installs it into an SSL_CTX, which then shares its parts; the identity itself
// is needed only while contexts are made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/model.h"
#include "tls/loading.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {

// The host names a certificate is good for (RFC 6125, 6.4): its dNSName entries, else, when it has none,
// its common name. Lower case; exact, or with "*" as the whole left-most label. Others are left out.
std::vector<std::string> names_of(const X509* certificate);

class Identity {
 public:
  // Reads chain (leaf first, then intermediates) and key. Reports, and returns null, what is unreadable
  // or malformed, a key of another certificate, an encrypted key that no passphrase opens, a leaf that
  // is not valid at the time of the check. A chain that is useless behind its leaf is warned of.
  // `name` is the subject of a certificate made here (self_signed).
  static std::unique_ptr<Identity> load(const config::Certificate& source, const std::string& name,
                                        Loading& loading);

  // Makes `context` show it, beside those of other key types. Reports what OpenSSL refuses, such as
  // keys too weak for the context's security level.
  bool install(SSL_CTX* context, Loading& loading) const;

  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] int key_type() const { return EVP_PKEY_get_base_id(key_.get()); }
  [[nodiscard]] const X509* leaf() const { return leaf_.get(); }
  // SHA-256 of the leaf's DER form.
  [[nodiscard]] std::string fingerprint() const;
  // How messages call it, and where it stands in the configuration.
  [[nodiscard]] const std::string& shown() const { return shown_; }
  [[nodiscard]] config::Mark mark() const { return mark_; }

 private:
  Identity() = default;

  X509Ptr leaf_;
  CertificatesPtr chain_;  // without the leaf
  KeyPtr key_;
  std::vector<std::string> names_;
  std::string shown_;
  config::Mark mark_;
};

}  // namespace tlsproxy::tls
