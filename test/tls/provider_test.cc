#include "tls/provider.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/provider.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.h"
#include "support/handshake.h"
#include "support/heap.h"
#include "support/tls_files.h"

namespace tlsproxy::tls {
namespace {

using Octets = std::vector<unsigned char>;
using KdfPtr = std::unique_ptr<EVP_KDF, FreedBy<EVP_KDF_free>>;
using DerivationPtr = std::unique_ptr<EVP_KDF_CTX, FreedBy<EVP_KDF_CTX_free>>;

KdfPtr fetch(const char* query) {
  return KdfPtr(EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_TLS1_3_KDF, query));
}

// A list of parameters. What they point to must live as long, and that includes itself for mode().
class Parameters {
 public:
  Parameters& mode(int value) {
    mode_ = value;
    list_.push_back(OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode_));
    return *this;
  }
  Parameters& text(const char* key, const char* value) {
    list_.push_back(OSSL_PARAM_construct_utf8_string(key, const_cast<char*>(value), 0));
    return *this;
  }
  Parameters& octets(const char* key, const Octets& value) {
    list_.push_back(
        OSSL_PARAM_construct_octet_string(key, const_cast<unsigned char*>(value.data()), value.size()));
    return *this;
  }
  [[nodiscard]] std::vector<OSSL_PARAM> list() const {
    auto ended = list_;
    ended.push_back(OSSL_PARAM_construct_end());
    return ended;
  }

 private:
  int mode_ = 0;
  std::vector<OSSL_PARAM> list_;
};

std::optional<Octets> derive(EVP_KDF_CTX* derivation, std::size_t size, const OSSL_PARAM* parameters) {
  Octets out(size);
  const bool done = EVP_KDF_derive(derivation, out.data(), out.size(), parameters) > 0;
  ERR_clear_error();
  return done ? std::optional(out) : std::nullopt;
}

std::optional<Octets> derive(const KdfPtr& kdf, std::size_t size, const std::vector<OSSL_PARAM>& parameters) {
  const DerivationPtr derivation(EVP_KDF_CTX_new(kdf.get()));
  return derive(derivation.get(), size, parameters.data());
}

const Octets kPrefix{'t', 'l', 's', '1', '3', ' '};
const Octets kDerived{'d', 'e', 'r', 'i', 'v', 'e', 'd'};

}  // namespace

TEST_CASE("contexts get our key derivation, and everybody else's algorithms elsewhere", "[tls_provider]") {
  const KdfPtr kdf = fetch(own_algorithms());
  REQUIRE(kdf);
  CHECK(OSSL_PROVIDER_get0_name(EVP_KDF_get0_provider(kdf.get())) == std::string_view("tlsproxy"));
  const std::unique_ptr<EVP_MD, FreedBy<EVP_MD_free>> digest(
      EVP_MD_fetch(nullptr, "SHA256", own_algorithms()));
  REQUIRE(digest);
  CHECK(OSSL_PROVIDER_get0_name(EVP_MD_get0_provider(digest.get())) == std::string_view("default"));
}

TEST_CASE("our key derivation agrees with OpenSSL's on whatever it is given", "[tls_provider]") {
  const KdfPtr ours = fetch(own_algorithms());
  const KdfPtr theirs = fetch("provider=default");
  REQUIRE(ours);
  REQUIRE(theirs);
  std::mt19937 random(20260704);
  const auto octets = [&random](std::size_t most) {
    Octets made(random() % (most + 1));
    for (unsigned char& octet : made) octet = static_cast<unsigned char>(random());
    made.reserve(1);
    return made;
  };
  int agreed = 0;
  for (int round = 0; round < 4000; ++round) {
    const bool sha384 = random() % 2 == 0;
    const bool extract = random() % 2 == 0;
    const std::size_t hash = sha384 ? 48 : 32;
    const Octets key = octets(round % 10 == 0 ? 1100 : 70);
    const Octets salt = octets(200);
    const Octets label = octets(round % 50 == 0 ? 260 : 20);
    const Octets data = octets(round % 50 == 1 ? 260 : 48);
    Parameters given;
    given.mode(extract ? EVP_KDF_HKDF_MODE_EXTRACT_ONLY : EVP_KDF_HKDF_MODE_EXPAND_ONLY);
    given.text(OSSL_KDF_PARAM_DIGEST, sha384 ? "SHA2-384" : "SHA256");
    if (!extract || random() % 2 == 0) given.octets(OSSL_KDF_PARAM_KEY, key);
    if (random() % 2 == 0) given.octets(OSSL_KDF_PARAM_SALT, salt);
    given.octets(OSSL_KDF_PARAM_PREFIX, kPrefix).octets(OSSL_KDF_PARAM_LABEL, label);
    if (random() % 2 == 0) given.octets(OSSL_KDF_PARAM_DATA, data);
    std::size_t size = extract ? hash : 1 + random() % 100;
    if (round % 100 == 2) size = 255 * hash + random() % 2;
    CAPTURE(round, sha384, extract, key.size(), salt.size(), label.size(), data.size(), size);
    const auto mine = derive(ours, size, given.list());
    REQUIRE(mine == derive(theirs, size, given.list()));
    if (mine) ++agreed;
  }
  CHECK(agreed > 3500);
}

TEST_CASE("what was set before holds until it is set anew or all is reset", "[tls_provider]") {
  const KdfPtr ours = fetch(own_algorithms());
  const KdfPtr theirs = fetch("provider=default");
  const Octets key(32, 1), other_key(32, 2), data(32, 3);
  const auto all = Parameters()
                       .text(OSSL_KDF_PARAM_MODE, "EXPAND_ONLY")
                       .text(OSSL_KDF_PARAM_DIGEST, "SHA256")
                       .octets(OSSL_KDF_PARAM_KEY, key)
                       .octets(OSSL_KDF_PARAM_PREFIX, kPrefix)
                       .octets(OSSL_KDF_PARAM_LABEL, kDerived)
                       .octets(OSSL_KDF_PARAM_DATA, data)
                       .list();
  const auto with_other_key = [&] {
    auto list = all;
    list[2] = Parameters().octets(OSSL_KDF_PARAM_KEY, other_key).list()[0];
    return list;
  }();
  const DerivationPtr derivation(EVP_KDF_CTX_new(ours.get()));
  CHECK_FALSE(derive(derivation.get(), 32, nullptr));
  REQUIRE(EVP_KDF_CTX_set_params(derivation.get(), all.data()) == 1);
  CHECK(derive(derivation.get(), 32, nullptr) == derive(theirs, 32, all));
  REQUIRE(EVP_KDF_CTX_set_params(derivation.get(),
                                 Parameters().octets(OSSL_KDF_PARAM_KEY, other_key).list().data()) == 1);
  CHECK(derive(derivation.get(), 32, nullptr) == derive(theirs, 32, with_other_key));
  const DerivationPtr copy(EVP_KDF_CTX_dup(derivation.get()));
  REQUIRE(copy);
  EVP_KDF_CTX_reset(derivation.get());
  CHECK_FALSE(derive(derivation.get(), 32, nullptr));
  CHECK(derive(copy.get(), 32, nullptr) == derive(theirs, 32, with_other_key));
}

TEST_CASE("a derivation that cannot be made is refused", "[tls_provider]") {
  const KdfPtr kdf = fetch(own_algorithms());
  const Octets key(32, 1);
  const auto made = [&](int mode, const char* digest, bool with_key, std::size_t size) {
    Parameters given;
    given.mode(mode);
    if (digest != nullptr) given.text(OSSL_KDF_PARAM_DIGEST, digest);
    if (with_key) given.octets(OSSL_KDF_PARAM_KEY, key);
    given.octets(OSSL_KDF_PARAM_PREFIX, kPrefix).octets(OSSL_KDF_PARAM_LABEL, kDerived);
    return derive(kdf, size, given.list()).has_value();
  };
  CHECK(made(EVP_KDF_HKDF_MODE_EXPAND_ONLY, "SHA256", true, 32));
  CHECK_FALSE(made(EVP_KDF_HKDF_MODE_EXTRACT_AND_EXPAND, "SHA256", true, 32));
  CHECK_FALSE(made(EVP_KDF_HKDF_MODE_EXPAND_ONLY, nullptr, true, 32));
  CHECK_FALSE(made(EVP_KDF_HKDF_MODE_EXPAND_ONLY, "SHA1", true, 20));
  CHECK_FALSE(made(EVP_KDF_HKDF_MODE_EXPAND_ONLY, "SHA256", false, 32));
  CHECK_FALSE(made(EVP_KDF_HKDF_MODE_EXPAND_ONLY, "SHA256", true, 0));
  CHECK_FALSE(made(EVP_KDF_HKDF_MODE_EXTRACT_ONLY, "SHA256", true, 31));
  CHECK_FALSE(made(EVP_KDF_HKDF_MODE_EXTRACT_ONLY, "SHA384", true, 32));
}

TEST_CASE("a derivation says how much it gives", "[tls_provider]") {
  const KdfPtr kdf = fetch(own_algorithms());
  const DerivationPtr derivation(EVP_KDF_CTX_new(kdf.get()));
  const auto extract =
      Parameters().text(OSSL_KDF_PARAM_MODE, "EXTRACT_ONLY").text(OSSL_KDF_PARAM_DIGEST, "SHA-384").list();
  REQUIRE(EVP_KDF_CTX_set_params(derivation.get(), extract.data()) == 1);
  CHECK(EVP_KDF_CTX_get_kdf_size(derivation.get()) == 48);
  const auto expand = Parameters().text(OSSL_KDF_PARAM_MODE, "EXPAND_ONLY").list();
  REQUIRE(EVP_KDF_CTX_set_params(derivation.get(), expand.data()) == 1);
  CHECK(EVP_KDF_CTX_get_kdf_size(derivation.get()) == SIZE_MAX);
}

TEST_CASE("our derivation meets OpenSSL's in full and resumed handshakes of both hashes", "[tls_provider]") {
  const std::string suite = GENERATE("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384");
  test::TlsFiles material;
  const config::Listener listener = test::listener_with(
      {material.certificate("a", test::issue({.common_name = "a", .dns = {"a.example"}}))});
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  SSL_CTX* server = contexts->choose("a.example").context;
  const auto client = test::make_client_context();
  REQUIRE(SSL_CTX_set_ciphersuites(client.get(), suite.c_str()) == 1);
  const auto full = test::shake_hands(client.get(), server);
  REQUIRE(full.done());
  const test::SessionPtr session(SSL_get1_session(full.client.get()));
  REQUIRE(SSL_SESSION_is_resumable(session.get()) == 1);
  const auto resumed =
      test::shake_hands(client.get(), server, [&](SSL* ssl) { SSL_set_session(ssl, session.get()); });
  REQUIRE(resumed.done());
  CHECK(SSL_session_reused(resumed.server.get()) == 1);
  CHECK(SSL_get_cipher(resumed.server.get()) == suite);
}

}  // namespace tlsproxy::tls
