#include "tls/pem.h"

#include <openssl/err.h>

#include "support/catch.h"
#include "support/certificates.h"

namespace tlsproxy::tls {
namespace {

using test::issue;
using test::Issued;
using test::KeyKind;

const Issued& rsa() {
  static const Issued issued = issue({.common_name = "rsa", .key = KeyKind::rsa});
  return issued;
}

const Issued& ec() {
  static const Issued issued = issue({.common_name = "ec"});
  return issued;
}

bool same_key(const base::Result<KeyPtr>& read, const Issued& issued) {
  return read && EVP_PKEY_eq(read->get(), issued.key.get()) == 1;
}

TEST_CASE("private keys of every type are read in both PEM forms", "[tls][pem]") {
  const Issued ed25519 = issue({.common_name = "ed", .key = KeyKind::ed25519});
  CHECK(same_key(read_private_key(rsa().key_pem(), {}), rsa()));
  CHECK(same_key(read_private_key(rsa().traditional_key_pem(), {}), rsa()));
  CHECK(same_key(read_private_key(ec().key_pem(), {}), ec()));
  CHECK(same_key(read_private_key(ec().traditional_key_pem(), {}), ec()));
  CHECK(same_key(read_private_key(ed25519.key_pem(), {}), ed25519));
}

TEST_CASE("a key is found behind certificates and EC parameters", "[tls][pem]") {
  const std::string parameters =
      "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
  CHECK(same_key(read_private_key(parameters + ec().traditional_key_pem(), {}), ec()));
  CHECK(same_key(read_private_key(ec().pem() + rsa().pem() + ec().key_pem(), {}), ec()));
  CHECK(same_key(read_private_key("text before\r\n" + ec().key_pem(), {}), ec()));
}

TEST_CASE("each passphrase is tried until one opens the key", "[tls][pem]") {
  const std::vector<std::string> passphrases{"wrong", "right", "other"};
  CHECK(same_key(read_private_key(rsa().key_pem("right"), passphrases), rsa()));
  CHECK(same_key(read_private_key(rsa().traditional_key_pem("right"), passphrases), rsa()));
  CHECK(same_key(read_private_key(ec().pem() + ec().key_pem("right"), passphrases), ec()));
  CHECK(same_key(read_private_key(ec().key_pem(), passphrases), ec()));
}

TEST_CASE("an encrypted key without a fitting passphrase is an error and never a prompt", "[tls][pem]") {
  for (const std::string& pem : {ec().key_pem("right"), ec().traditional_key_pem("right")}) {
    const auto none = read_private_key(pem, {});
    REQUIRE_FALSE(none);
    CHECK(none.error().message == "it is encrypted and needs a password_file");
    const auto wrong = read_private_key(pem, {"wrong", std::string(5000, 'x')});
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().message == "it is encrypted and no passphrase fits");
  }
  CHECK(ERR_peek_error() == 0);
}

TEST_CASE("what is no key is told apart from a broken one", "[tls][pem]") {
  const auto none = read_private_key(ec().pem(), {});
  REQUIRE_FALSE(none);
  CHECK(none.error().message == "there is no private key in it (PEM is expected)");
  std::string broken = ec().key_pem();
  broken.replace(40, 4, "!!!!");
  const auto malformed = read_private_key(broken, {});
  REQUIRE_FALSE(malformed);
  CHECK(malformed.error().message.find("its private key is malformed: ") == 0);
  CHECK_FALSE(read_private_key("", {}));
  CHECK(ERR_peek_error() == 0);
}

TEST_CASE("passphrases are lines, whatever their ends", "[tls][pem]") {
  CHECK(read_passphrases("one\ntwo\r\n\r\n\nthree four") ==
        std::vector<std::string>{"one", "two", "three four"});
  CHECK(read_passphrases("last\n") == std::vector<std::string>{"last"});
  CHECK(read_passphrases("").empty());
  CHECK(read_passphrases("\n\r\n").empty());
}

TEST_CASE("all certificates of a text are read in their order", "[tls][pem]") {
  const auto read = read_certificates(ec().pem() + ec().key_pem() + rsa().pem());
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  CHECK(X509_cmp((*read)[0].get(), ec().certificate.get()) == 0);
  CHECK(X509_cmp((*read)[1].get(), rsa().certificate.get()) == 0);
  CHECK(ERR_peek_error() == 0);
}

TEST_CASE("a byte order mark does not hide the first certificate", "[tls][pem]") {
  const auto read = read_certificates("\xEF\xBB\xBF" + ec().pem() + rsa().pem());
  REQUIRE(read);
  CHECK(read->size() == 2);
}

TEST_CASE("a text without certificates, or with a broken one, is refused", "[tls][pem]") {
  const auto none = read_certificates(ec().key_pem());
  REQUIRE_FALSE(none);
  CHECK(none.error().message == "there is no certificate in it (PEM is expected)");
  CHECK_FALSE(read_certificates(""));
  std::string broken = ec().pem();
  broken.replace(60, 8, "AAAAAAAA");
  const auto second = read_certificates(rsa().pem() + broken);
  REQUIRE_FALSE(second);
  CHECK(second.error().message.find("certificate number 2 in it is malformed: ") == 0);
  const auto cut = read_certificates(ec().pem().substr(0, 200));
  CHECK_FALSE(cut);
  CHECK(ERR_peek_error() == 0);
}

TEST_CASE("one text may hold several revocation lists", "[tls][pem]") {
  const Issued ca = issue({.common_name = "ca", .ca = true});
  const Issued other = issue({.common_name = "other", .ca = true});
  const auto read = read_crls(make_crl(ca, {}) + make_crl(other, {}));
  REQUIRE(read);
  CHECK(read->size() == 2);
  const auto none = read_crls("");
  REQUIRE_FALSE(none);
  CHECK(none.error().message == "there is no revocation list in it (PEM is expected)");
}

}  // namespace
}  // namespace tlsproxy::tls
