#include "tls/certificate_groups.h"

#include <algorithm>

#include "support/catch.h"
#include "support/tls_files.h"

namespace tlsproxy::tls {
namespace {

using test::issue;
using test::KeyKind;

// Identities of one test, told apart by their common names.
class Identities {
 public:
  void add(const std::string& common_name, const std::vector<std::string>& dns, KeyKind key = KeyKind::p256) {
    config::Diagnostics diagnostics("test.yaml");
    test::TlsFiles material;
    const auto source =
        material.certificate(common_name, issue({.common_name = common_name, .dns = dns, .key = key}));
    config::RecordedFiles files(material.files());
    Loading loading("listener 'web'", {1, 1}, files, diagnostics);
    loaded_.push_back(Identity::load(source, "web", loading));
    REQUIRE(loaded_.back());
  }

  [[nodiscard]] CertificateGroups group() const {
    std::vector<const Identity*> all;
    for (const auto& identity : loaded_) all.push_back(identity.get());
    return group_by_name(all);
  }

 private:
  std::vector<std::unique_ptr<Identity>> loaded_;
};

std::vector<std::string> shown(const CertificateGroup& group) {
  std::vector<std::string> names;
  for (const Identity* identity : group) names.push_back(identity->shown());
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("certificates of different key types for one name form one group", "[tls][certificate_groups]") {
  Identities identities;
  identities.add("rsa", {"a.example", "b.example"}, KeyKind::rsa);
  identities.add("ec", {"a.example"});
  const CertificateGroups groups = identities.group();
  CHECK(shown(groups.by_name.at("a.example")) == Names{"certificate 'rsa.pem'", "certificate 'ec.pem'"});
  CHECK(shown(groups.by_name.at("b.example")) == Names{"certificate 'rsa.pem'"});
  CHECK(groups.shadows.empty());
}

TEST_CASE("the first of two certificates with one key type serves their common names",
          "[tls][certificate_groups]") {
  Identities identities;
  identities.add("first", {"a.example"});
  identities.add("second", {"a.example", "b.example", "c.example"});
  identities.add("third", {"b.example", "c.example"}, KeyKind::p384);
  const CertificateGroups groups = identities.group();
  CHECK(shown(groups.by_name.at("a.example")) == Names{"certificate 'first.pem'"});
  CHECK(shown(groups.by_name.at("b.example")) == Names{"certificate 'second.pem'"});
  REQUIRE(groups.shadows.size() == 2);
  CHECK(groups.shadows[0].later->shown() == "certificate 'second.pem'");
  CHECK(groups.shadows[0].names == Names{"a.example"});
  CHECK(groups.shadows[1].names == Names{"b.example", "c.example"});
}

TEST_CASE("an exact name is not joined by a wildcard certificate of another key type",
          "[tls][certificate_groups]") {
  Identities identities;
  identities.add("wild", {"*.example"}, KeyKind::rsa);
  identities.add("exact", {"a.example"});
  const CertificateGroups groups = identities.group();
  CHECK(shown(groups.by_name.at("a.example")) == Names{"certificate 'exact.pem'"});
  CHECK(shown(groups.by_name.at("*.example")) == Names{"certificate 'wild.pem'"});
}

TEST_CASE("the fallback is the first certificate with those that cover its names under other key types",
          "[tls][certificate_groups]") {
  Identities identities;
  identities.add("first", {"a.example", "b.example"}, KeyKind::rsa);
  identities.add("half", {"a.example"});
  identities.add("whole", {"b.example", "a.example", "c.example"}, KeyKind::p384);
  identities.add("again", {"a.example", "b.example"}, KeyKind::p256);
  CHECK(shown(identities.group().fallback) == Names{"certificate 'first.pem'", "certificate 'whole.pem'"});
}

TEST_CASE("a certificate without names is of use in the first place only", "[tls][certificate_groups]") {
  Identities first;
  first.add("no host", {}, KeyKind::rsa);
  first.add("ec", {"a.example"});
  CHECK(shown(first.group().fallback) == Names{"certificate 'no host.pem'"});
  CHECK(first.group().unreachable.empty());

  Identities second;
  second.add("ec", {"a.example"});
  second.add("no host", {}, KeyKind::rsa);
  CHECK(shown(second.group().fallback) == Names{"certificate 'ec.pem'"});
  CHECK(shown(second.group().unreachable) == Names{"certificate 'no host.pem'"});
}

TEST_CASE("a wildcard covers one whole label", "[tls][certificate_groups]") {
  CHECK(wildcard_for("a.b.example") == "*.b.example");
  CHECK(wildcard_for("a.example") == "*.example");
  CHECK(wildcard_for("localhost").empty());
  CHECK(wildcard_for(".example").empty());
  CHECK(wildcard_for("example.").empty());
  CHECK(wildcard_for("").empty());
}

}  // namespace
}  // namespace tlsproxy::tls
