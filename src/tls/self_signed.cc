// make_self_signed of tls/context.h.
#include <openssl/bn.h>
#include <openssl/pem.h>

#include <algorithm>
#include <memory>

#include "tls/context.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {
namespace {

constexpr long kHour = 60L * 60;
constexpr long kLifetime = 30 * 24 * kHour;
constexpr std::size_t kLongestCommonName = 64;  // ub-common-name, RFC 5280, appendix A.1

// Labels of letters, digits and inner hyphens (RFC 1123, 2.1).
bool is_host_name(const std::string& name) {
  char before = '.';
  for (const char c : name) {
    const bool letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter_or_digit && c != '-' && c != '.') return false;
    if (before == '.' && !letter_or_digit) return false;
    if (before == '-' && c == '.') return false;
    before = c;
  }
  return before != '.' && before != '-' && name.size() <= 253;
}

bool set_random_serial(X509* certificate) {
  // 127 bits: positive, and unique without a register.
  const std::unique_ptr<BIGNUM, FreedBy<BN_free>> serial(BN_new());
  return serial && BN_rand(serial.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_name(X509* certificate, const std::string& common_name) {
  X509_NAME* name = X509_get_subject_name(certificate);
  const std::string text = common_name.empty() ? "localhost" : common_name.substr(0, kLongestCommonName);
  return X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0) == 1 &&
         X509_set_issuer_name(certificate, name) == 1;
}

bool add_extension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, FreedBy<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool add_extensions(X509* certificate, const std::string& common_name) {
  std::string names = "DNS:localhost";
  if (is_host_name(common_name) && common_name != "localhost") names += ",DNS:" + common_name;
  names += ",IP:127.0.0.1,IP:::1";
  return add_extension(certificate, NID_basic_constraints, "critical,CA:FALSE") &&
         add_extension(certificate, NID_key_usage, "critical,digitalSignature") &&
         add_extension(certificate, NID_ext_key_usage, "serverAuth") &&
         add_extension(certificate, NID_subject_alt_name, names) &&
         add_extension(certificate, NID_subject_key_identifier, "hash");
}

}  // namespace

base::Result<std::string> make_self_signed(const std::string& common_name) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const X509Ptr certificate(X509_new());
  const BioPtr pem(BIO_new(BIO_s_mem()));
  const bool made =
      key && certificate && pem && X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
      set_random_serial(certificate.get()) && set_name(certificate.get(), common_name) &&
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kHour) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kLifetime) != nullptr &&
      X509_set_pubkey(certificate.get(), key.get()) == 1 && add_extensions(certificate.get(), common_name) &&
      X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0 &&
      PEM_write_bio_X509(pem.get(), certificate.get()) == 1 &&
      PEM_write_bio_PKCS8PrivateKey(pem.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1;
  const std::string cause = take_errors();
  if (!made) return base::failure("cannot make a self-signed certificate: " + cause);
  return written(pem.get());
}

}  // namespace tlsproxy::tls
