#include "support/certificates.h"

#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace tlsproxy::test {
namespace {

using tls::BioPtr;
using tls::FreedBy;
using tls::KeyPtr;
using tls::X509Ptr;

// A helper that fails means that the test itself is wrong: nothing it would show is of use.
void must(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "test certificates: %s failed\n", what);
  std::abort();
}

KeyPtr shared_rsa(unsigned int bits, std::size_t slot) {
  static KeyPtr made[3];
  if (!made[slot]) made[slot].reset(EVP_RSA_gen(bits));
  must(made[slot] != nullptr && EVP_PKEY_up_ref(made[slot].get()) == 1, "RSA key");
  return KeyPtr(made[slot].get());
}

long next_serial() {
  static std::atomic<long> serial{1000};
  return ++serial;
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, FreedBy<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  must(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "extension");
}

// Not through X509V3_EXT_conf_nid, which would interpret commas and colons.
void add_names(X509* certificate, const CertificateSpec& spec) {
  if (spec.dns.empty() && spec.ips.empty()) return;
  const tls::GeneralNamesPtr names(sk_GENERAL_NAME_new_null());
  const auto add = [&names](int kind, ASN1_STRING* value) {
    GENERAL_NAME* name = GENERAL_NAME_new();
    GENERAL_NAME_set0_value(name, kind, value);
    sk_GENERAL_NAME_push(names.get(), name);
  };
  for (const std::string& dns : spec.dns) {
    ASN1_IA5STRING* value = ASN1_IA5STRING_new();
    ASN1_STRING_set(value, dns.data(), static_cast<int>(dns.size()));
    add(GEN_DNS, value);
  }
  for (const std::string& ip : spec.ips) add(GEN_IPADD, a2i_IPADDRESS(ip.c_str()));
  must(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) == 1,
       "names");
}

const EVP_MD* digest_for(const EVP_PKEY* key) {
  return EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
}

}  // namespace

KeyPtr make_key(KeyKind kind) {
  switch (kind) {
    case KeyKind::p256:
      return KeyPtr(EVP_EC_gen("P-256"));
    case KeyKind::p384:
      return KeyPtr(EVP_EC_gen("P-384"));
    case KeyKind::ed25519:
      return KeyPtr(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    case KeyKind::rsa:
      return shared_rsa(2048, 0);
    case KeyKind::other_rsa:
      return shared_rsa(2048, 1);
    case KeyKind::weak_rsa:
      return shared_rsa(1024, 2);
  }
  return nullptr;
}

std::string Issued::pem() const {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  must(PEM_write_bio_X509(bio.get(), certificate.get()) == 1, "certificate to PEM");
  return tls::written(bio.get());
}

std::string Issued::key_pem(const std::string& passphrase) const {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  const bool plain = passphrase.empty();
  must(PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), plain ? nullptr : EVP_aes_256_cbc(),
                                     plain ? nullptr : passphrase.data(), static_cast<int>(passphrase.size()),
                                     nullptr, nullptr) == 1,
       "key to PEM");
  return tls::written(bio.get());
}

std::string Issued::traditional_key_pem(const std::string& passphrase) const {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  const bool plain = passphrase.empty();
  const auto* text = reinterpret_cast<const unsigned char*>(passphrase.data());
  must(PEM_write_bio_PrivateKey_traditional(bio.get(), key.get(), plain ? nullptr : EVP_aes_128_cbc(),
                                            plain ? nullptr : text, static_cast<int>(passphrase.size()),
                                            nullptr, nullptr) == 1,
       "key to PEM");
  return tls::written(bio.get());
}

Issued issue(const CertificateSpec& spec, const Issued* issuer) {
  Issued made{X509Ptr(X509_new()), make_key(spec.key)};
  X509* certificate = made.certificate.get();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), next_serial());
  X509_gmtime_adj(X509_getm_notBefore(certificate), spec.valid_from);
  X509_gmtime_adj(X509_getm_notAfter(certificate), spec.valid_until);
  X509_NAME* subject = X509_get_subject_name(certificate);
  if (!spec.common_name.empty()) {
    must(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(spec.common_name.data()),
                                    static_cast<int>(spec.common_name.size()), -1, 0) == 1,
         "common name");
  }
  X509* signer = issuer != nullptr ? issuer->certificate.get() : certificate;
  EVP_PKEY* signing_key = issuer != nullptr ? issuer->key.get() : made.key.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(signer));
  X509_set_pubkey(certificate, made.key.get());
  add_extension(certificate, signer, NID_basic_constraints,
                spec.ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
  add_extension(certificate, signer, NID_key_usage,
                spec.ca ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature");
  add_extension(certificate, signer, NID_subject_key_identifier, "hash");
  if (issuer != nullptr) add_extension(certificate, signer, NID_authority_key_identifier, "keyid:always");
  add_names(certificate, spec);
  must(X509_sign(certificate, signing_key, digest_for(signing_key)) > 0, "signing a certificate");
  return made;
}

std::string make_crl(const Issued& issuer, const std::vector<const Issued*>& revoked, const CrlSpec& spec) {
  const tls::CrlPtr crl(X509_CRL_new());
  X509_CRL_set_version(crl.get(), X509_CRL_VERSION_2);
  X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(issuer.certificate.get()));
  const std::unique_ptr<ASN1_TIME, FreedBy<ASN1_TIME_free>> time(ASN1_TIME_new());
  X509_CRL_set1_lastUpdate(crl.get(), X509_gmtime_adj(time.get(), spec.this_update));
  if (spec.next_update) X509_CRL_set1_nextUpdate(crl.get(), X509_gmtime_adj(time.get(), *spec.next_update));
  X509_gmtime_adj(time.get(), spec.this_update);
  for (const Issued* one : revoked) {
    X509_REVOKED* entry = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(one->certificate.get()));
    X509_REVOKED_set_revocationDate(entry, time.get());
    X509_CRL_add0_revoked(crl.get(), entry);
  }
  // As CAs do: OpenSSL judges by this identifier whose list it is.
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer.certificate.get(), nullptr, nullptr, crl.get(), 0);
  const std::unique_ptr<X509_EXTENSION, FreedBy<X509_EXTENSION_free>> issuer_key(
      X509V3_EXT_conf_nid(nullptr, &context, NID_authority_key_identifier, "keyid:always"));
  must(issuer_key && X509_CRL_add_ext(crl.get(), issuer_key.get(), -1) == 1, "CRL extension");
  must(X509_CRL_sign(crl.get(), issuer.key.get(), digest_for(issuer.key.get())) > 0, "signing a CRL");
  const BioPtr bio(BIO_new(BIO_s_mem()));
  must(PEM_write_bio_X509_CRL(bio.get(), crl.get()) == 1, "CRL to PEM");
  return tls::written(bio.get());
}

std::string date_from_now(long seconds) {
  const std::unique_ptr<ASN1_TIME, FreedBy<ASN1_TIME_free>> time(ASN1_TIME_new());
  return tls::to_text(X509_gmtime_adj(time.get(), seconds));
}

}  // namespace tlsproxy::test
