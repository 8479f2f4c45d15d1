#include "tls/identity.h"

#include <openssl/err.h>

#include "support/catch.h"
#include "support/tls_files.h"

namespace tlsproxy::tls {
namespace {

using test::date_from_now;
using test::issue;
using test::Issued;
using test::KeyKind;
using test::listener_with;
using test::TlsFiles;
using Names = std::vector<std::string>;

Names names_in(const test::CertificateSpec& spec) {
  return names_of(issue(spec).certificate.get());
}

TEST_CASE("the names of a certificate are its dNSName entries in lower case", "[tls][identity]") {
  CHECK(names_in({.common_name = "cn.example", .dns = {"A.Example", "*.B.EXAMPLE", "a.example"}}) ==
        Names{"a.example", "*.b.example"});
  CHECK(names_in({.dns = {"dot.example."}}) == Names{"dot.example"});
}

TEST_CASE("the common name counts only when there is no dNSName at all", "[tls][identity]") {
  CHECK(names_in({.common_name = "CN.Example"}) == Names{"cn.example"});
  CHECK(names_in({.common_name = "cn.example", .ips = {"127.0.0.1"}}) == Names{"cn.example"});
  CHECK(names_in({.common_name = "cn.example", .dns = {"not a host"}}).empty());
  CHECK(names_in({.common_name = "My Server"}).empty());
  CHECK(names_in({}).empty());
}

TEST_CASE("a wildcard is a name only as the whole left-most label", "[tls][identity]") {
  CHECK(names_in({.dns = {"*", "*.", "*.*.example", "a.*.example", "f*.example", "*a.example", "*..example"}})
            .empty());
}

TEST_CASE("a name with bytes that no host name has is not one", "[tls][identity]") {
  CHECK(names_in({.dns = {std::string("a.example\0.evil", 15), "a b.example", "b\xC3\xBC.example", "", "."}})
            .empty());
}

// --- loading, through a listener as the program does it ------------------------------------------

TEST_CASE("every fault of every certificate is told with its file, listener and place", "[tls][identity]") {
  TlsFiles material;
  const Issued good = issue({.dns = {"good.example"}});
  config::Certificate missing = material.certificate("missing", good);
  material.files().erase("missing.pem");
  material.files().erase("missing.key");
  config::Certificate swapped = material.certificate("swapped", good);
  std::swap(material.files()["swapped.pem"], material.files()["swapped.key"]);
  config::Certificate foreign = material.certificate("foreign", good);
  material.files()["foreign.key"] = issue({}).key_pem();
  const config::Listener listener = listener_with({missing, swapped, foreign});
  CHECK(material.make(listener) == nullptr);
  CHECK(material.errors() ==
        Names{"listener 'web': 'missing.pem' is not in the bundle",
              "listener 'web': 'missing.key' is not in the bundle",
              "listener 'web': certificate 'swapped.pem': there is no certificate in it (PEM is expected)",
              "listener 'web': key 'swapped.key': there is no private key in it (PEM is expected)",
              "listener 'web': key 'foreign.key' does not match the first certificate of 'foreign.pem' ()"});
  CHECK(material.diagnostics().entries()[0].mark.line == missing.chain.mark.line);
  CHECK(material.diagnostics().entries()[1].mark.line == missing.key.mark.line);
  CHECK(material.diagnostics().entries()[4].mark.line == foreign.key.mark.line);
  CHECK(ERR_peek_error() == 0);
}

TEST_CASE("a key of another type than the certificate's does not match it", "[tls][identity]") {
  TlsFiles material;
  const config::Certificate mixed = material.certificate("mixed", issue({.common_name = "mixed"}));
  material.files()["mixed.key"] = issue({.key = KeyKind::rsa}).key_pem();
  CHECK(material.make(listener_with({mixed})) == nullptr);
  CHECK(
      material.errors() ==
      Names{
          "listener 'web': key 'mixed.key' does not match the first certificate of 'mixed.pem' (CN=mixed)"});
}

TEST_CASE("a chain in the wrong order is recognised", "[tls][identity]") {
  TlsFiles material;
  const Issued ca = issue({.common_name = "ca", .ca = true});
  const Issued leaf = issue({.common_name = "leaf"}, &ca);
  const config::Certificate certificate = material.certificate("web", leaf);
  material.files()["web.pem"] = ca.pem() + leaf.pem();
  CHECK(material.make(listener_with({certificate})) == nullptr);
  CHECK(
      material.errors() ==
      Names{
          "listener 'web': key 'web.key' does not match the first certificate of 'web.pem' (CN=ca); a later "
          "one in the file fits and must come first"});
}

TEST_CASE("certificates that are not valid now are refused with the date", "[tls][identity]") {
  TlsFiles material;
  const auto expired =
      material.certificate("old", issue({.common_name = "old", .valid_from = -7200, .valid_until = -60}));
  const std::string old_date = date_from_now(-60);
  const auto early = material.certificate("new", issue({.common_name = "new", .valid_from = 3600}));
  const std::string new_date = date_from_now(3600);
  CHECK(material.make(listener_with({expired, early})) == nullptr);
  const Names errors = material.errors();
  REQUIRE(errors.size() == 2);
  // The clock may have moved on by a second between the certificate and the date.
  const std::string minute = old_date.substr(0, 15);
  CHECK(errors[0].find("listener 'web': certificate 'old.pem' (CN=old) expired on " + minute) == 0);
  CHECK(errors[1].find("listener 'web': certificate 'new.pem' (CN=new) is not valid before " +
                       new_date.substr(0, 15)) == 0);
}

TEST_CASE("validity is judged at the time the configuration was checked first", "[tls][identity]") {
  TlsFiles material;
  const config::Listener listener = listener_with(
      {material.certificate("old", issue({.common_name = "old", .valid_from = -7200, .valid_until = -60}))});
  material.files()
      ["\x01"
       "checked-at"] = std::to_string(std::time(nullptr) - 3600);
  CHECK(material.make(listener) != nullptr);
  material.files()
      ["\x01"
       "checked-at"] = "not a number";
  CHECK(material.make(listener) == nullptr);
}

TEST_CASE("a key too weak for TLS today is refused by name", "[tls][identity]") {
  TlsFiles material;
  const config::Listener listener =
      listener_with({material.certificate("weak", issue({.common_name = "weak", .key = KeyKind::weak_rsa}))});
  CHECK(material.make(listener) == nullptr);
  CHECK(material.errors() ==
        Names{"listener 'web': certificate 'weak.pem' (CN=weak) is refused: ee key too small"});
}

TEST_CASE("an encrypted key needs its password file", "[tls][identity]") {
  TlsFiles material;
  const Issued issued = issue({.common_name = "a.example"});
  config::Certificate certificate = material.certificate("a", issued);
  material.files()["a.key"] = issued.key_pem("open sesame");
  CHECK(material.make(listener_with({certificate})) == nullptr);
  CHECK(material.errors() == Names{"listener 'web': key 'a.key': it is encrypted and needs a password_file"});

  certificate.password_file = material.file("words", "wrong\r\nopen sesame\r\n");
  CHECK(material.make(listener_with({certificate})) != nullptr);

  material.files()["words"] = "wrong\n";
  CHECK(material.make(listener_with({certificate})) == nullptr);
  CHECK(material.errors() ==
        Names{"listener 'web': key 'a.key': it is encrypted and no passphrase fits (password_file 'words')"});

  material.files().erase("words");
  CHECK(material.make(listener_with({certificate})) == nullptr);
  CHECK(material.errors() == Names{"listener 'web': 'words' is not in the bundle"});
  CHECK(material.diagnostics().entries()[0].mark.line == certificate.password_file.mark.line);
}

TEST_CASE("chain and key may be one file", "[tls][identity]") {
  TlsFiles material;
  const Issued issued = issue({.common_name = "a.example"});
  config::Certificate certificate;
  certificate.chain = material.file("both.pem", issued.key_pem() + issued.pem());
  CHECK(material.make(listener_with({certificate})) != nullptr);
  certificate.key = certificate.chain;
  CHECK(material.make(listener_with({certificate})) != nullptr);
  CHECK(material.warnings().empty());
}

TEST_CASE("a chain that does not lead on from its leaf is warned of", "[tls][identity]") {
  TlsFiles material;
  const Issued root = issue({.common_name = "root", .ca = true});
  const Issued ca = issue({.common_name = "ca", .ca = true}, &root);
  const Issued old_ca =
      issue({.common_name = "old ca", .ca = true, .valid_from = -7200, .valid_until = -60}, &root);
  const Issued leaf = issue({.common_name = "a.example"}, &ca);
  CHECK(material.make(listener_with({material.certificate("good", leaf, {&ca, &root})})) != nullptr);
  CHECK(material.warnings().empty());
  CHECK(material.make(listener_with({material.certificate("odd", leaf, {&old_ca})})) != nullptr);
  const Names warnings = material.warnings();
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].find("listener 'web': certificate 'odd.pem': its intermediate (CN=old ca) expired on ") ==
        0);
  CHECK(warnings[1] ==
        "listener 'web': certificate 'odd.pem': its intermediate (CN=old ca) did not issue the certificate "
        "before it");
}

}  // namespace
}  // namespace tlsproxy::tls
