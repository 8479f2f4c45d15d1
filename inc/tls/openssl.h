// Owning handles for OpenSSL's objects, and their values as text.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

namespace tlsproxy::tls {

template <auto free_function>
struct FreedBy {
  template <class T>
  void operator()(T* object) const {
    free_function(object);
  }
};

struct FreeCertificates {
  void operator()(STACK_OF(X509) * stack) const { sk_X509_pop_free(stack, X509_free); }
};

struct FreeNames {
  void operator()(STACK_OF(X509_NAME) * stack) const { sk_X509_NAME_pop_free(stack, X509_NAME_free); }
};

using BioPtr = std::unique_ptr<BIO, FreedBy<BIO_free_all>>;
using X509Ptr = std::unique_ptr<X509, FreedBy<X509_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, FreedBy<X509_CRL_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using StorePtr = std::unique_ptr<X509_STORE, FreedBy<X509_STORE_free>>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, FreedBy<GENERAL_NAMES_free>>;
using CertificatesPtr = std::unique_ptr<STACK_OF(X509), FreeCertificates>;
using NamesPtr = std::unique_ptr<STACK_OF(X509_NAME), FreeNames>;

// A BIO that reads `text`, which must outlive it.
BioPtr reader(std::string_view text);

// Everything written into a memory BIO so far.
std::string written(BIO* bio);

// A distinguished name as in RFC 2253: "CN=alice,O=Example", most specific part first. UTF-8; control
// characters come as \XX.
std::string to_text(const X509_NAME* name);

// "2026-01-31 12:00:00 UTC".
std::string to_text(const ASN1_TIME* time);

// "expired on DATE", "is not valid before DATE", or nothing when `certificate` is valid at `now`.
std::string outside_validity(const X509* certificate, std::time_t now);

// The 32 bytes of the digest.
std::string sha256(std::string_view bytes);

}  // namespace tlsproxy::tls
