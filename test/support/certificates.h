// Throw-away certificates, keys and revocation lists, made in memory for one test.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tls/openssl.h"

namespace tlsproxy::test {

enum class KeyKind { p256, p384, ed25519, rsa, other_rsa, weak_rsa };

// A key of this kind. RSA keys are made once per process, since making one takes long: two certificates
// with KeyKind::rsa share it, `other_rsa` is a different one.
tls::KeyPtr make_key(KeyKind kind);

struct CertificateSpec {
  std::string common_name{};       // empty: no common name
  std::vector<std::string> dns{};  // dNSName entries, as they are
  std::vector<std::string> ips{};
  bool ca = false;
  KeyKind key = KeyKind::p256;
  long valid_from = -3600;  // seconds from now
  long valid_until = 86400;
};

// A certificate with its key; `certificate` is signed by the issuer given to issue(), or by itself.
struct Issued {
  tls::X509Ptr certificate;
  tls::KeyPtr key;

  [[nodiscard]] std::string pem() const;
  // PKCS #8; encrypted when there is a passphrase.
  [[nodiscard]] std::string key_pem(const std::string& passphrase = {}) const;
  // The older form, "BEGIN RSA PRIVATE KEY" or "BEGIN EC PRIVATE KEY".
  [[nodiscard]] std::string traditional_key_pem(const std::string& passphrase = {}) const;
};

Issued issue(const CertificateSpec& spec, const Issued* issuer = nullptr);

struct CrlSpec {
  long this_update = -3600;  // seconds from now
  std::optional<long> next_update = 86400;
};

// A revocation list by `issuer` in PEM form that names `revoked`.
std::string make_crl(const Issued& issuer, const std::vector<const Issued*>& revoked,
                     const CrlSpec& spec = {});

// The time `seconds` from now, as the messages of tls/ write it.
std::string date_from_now(long seconds);

}  // namespace tlsproxy::test
