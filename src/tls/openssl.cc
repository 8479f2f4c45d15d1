#include "tls/openssl.h"

#include <array>

#include "base/check.h"

namespace tlsproxy::tls {

BioPtr reader(std::string_view text) {
  // A null address is refused even for no bytes.
  return BioPtr(BIO_new_mem_buf(text.empty() ? "" : text.data(), static_cast<int>(text.size())));
}

std::string written(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

std::string to_text(const X509_NAME* name) {
  // RFC 2253 allows UTF-8 as it is; the flag set alone would write each of its bytes as \XX.
  constexpr unsigned long kFlags = XN_FLAG_RFC2253 & ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB);
  const BioPtr text(BIO_new(BIO_s_mem()));
  if (!text || X509_NAME_print_ex(text.get(), name, 0, kFlags) < 0) return {};
  return written(text.get());
}

std::string to_text(const ASN1_TIME* time) {
  std::tm broken_down{};
  char text[64];
  if (ASN1_TIME_to_tm(time, &broken_down) != 1) return "an unreadable date";
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &broken_down)};
}

std::string outside_validity(const X509* certificate, std::time_t now) {
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* until = X509_get0_notAfter(certificate);
  if (X509_cmp_time(from, &now) >= 0) return "is not valid before " + to_text(from);
  if (X509_cmp_time(until, &now) <= 0) return "expired on " + to_text(until);
  return {};
}

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  TLSPROXY_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1,
                 "SHA-256 is part of every OpenSSL provider");
  return {digest.begin(), digest.begin() + size};
}

}  // namespace tlsproxy::tls
