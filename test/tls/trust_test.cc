// Real handshakes with client certificates against a listener's contexts: who gets in, and what the
// server says of those who do not.
#include "tls/trust.h"

#include <openssl/err.h>

#include "support/catch.h"
#include "support/handshake.h"
#include "support/tls_files.h"
#include "tls/peer.h"

namespace tlsproxy::tls {
namespace {

using config::ClientAuthMode;
using test::CrlSpec;
using test::issue;
using test::Issued;
using test::TlsFiles;
using Names = std::vector<std::string>;

constexpr CrlSpec kExpiredCrl{-7200, -60};
constexpr CrlSpec kEarlyCrl{3600, 86400};

// root -> intermediate -> good and revoked
struct Pki {
  Issued root = issue({.common_name = "root", .ca = true});
  Issued intermediate = issue({.common_name = "intermediate", .ca = true}, &root);
  Issued good = issue({.common_name = "good"}, &intermediate);
  Issued revoked = issue({.common_name = "revoked"}, &intermediate);

  [[nodiscard]] std::string root_crl(const CrlSpec& spec = {}) const { return make_crl(root, {}, spec); }
  [[nodiscard]] std::string intermediate_crl(const CrlSpec& spec = {}) const {
    return make_crl(intermediate, {&revoked}, spec);
  }
};

const Pki& pki() {
  static const Pki made;
  return made;
}

// A listener that demands client certificates.
class Gate {
 public:
  Gate(const std::string& ca, const Names& crls) {
    listener_ = test::listener_with({material_.certificate("web", issue({.common_name = "web.example"}))});
    config::ClientAuth& client_auth = listener_.tls.policy.client_auth;
    client_auth.mode = ClientAuthMode::required;
    client_auth.ca = material_.file("ca.pem", ca);
    for (std::size_t i = 0; i < crls.size(); ++i) {
      client_auth.crl.push_back(material_.file("crl" + std::to_string(i + 1) + ".pem", crls[i]));
    }
    load();
  }

  config::ClientAuth& client_auth() { return listener_.tls.policy.client_auth; }
  TlsFiles& material() { return material_; }
  bool load() {
    contexts_ = material_.make(listener_);
    CHECK(ERR_peek_error() == 0);
    return contexts_ != nullptr;
  }
  [[nodiscard]] bool loaded() const { return contexts_ != nullptr; }
  [[nodiscard]] SSL_CTX* context() const { return contexts_->choose("").context; }

  // "in", or the reason by which the client with this certificate stayed out; the same for both versions.
  std::string verdict_on(const Issued& client, const std::vector<const Issued*>& intermediates) {
    const std::string new_version = verdict_on(client, intermediates, TLS1_3_VERSION);
    CHECK(verdict_on(client, intermediates, TLS1_2_VERSION) == new_version);
    return new_version;
  }

 private:
  std::string verdict_on(const Issued& client, const std::vector<const Issued*>& intermediates, int version) {
    const auto context = test::make_client_context();
    SSL_CTX_set_max_proto_version(context.get(), version);
    SSL_CTX_use_certificate(context.get(), client.certificate.get());
    SSL_CTX_use_PrivateKey(context.get(), client.key.get());
    for (const Issued* intermediate : intermediates) {
      SSL_CTX_add1_chain_cert(context.get(), intermediate->certificate.get());
    }
    const test::Handshake handshake = test::shake_hands(context.get(), this->context());
    if (handshake.done()) {
      CHECK(verify_error(handshake.server.get()).empty());
      return "in";
    }
    CHECK(handshake.server_error == "certificate verify failed");
    return verify_error(handshake.server.get());
  }

  TlsFiles material_;
  config::Listener listener_;
  std::unique_ptr<ServerContexts> contexts_;
};

constexpr char kNoCrl[] = "unable to get certificate CRL";
constexpr char kRevoked[] = "certificate revoked";
constexpr char kNoIssuer[] = "unable to get local issuer certificate";

TEST_CASE("an intermediate alone is a trust anchor", "[tls][trust]") {
  Gate gate(pki().intermediate.pem(), {});
  REQUIRE(gate.loaded());
  CHECK(gate.material().warnings().empty());
  CHECK(gate.verdict_on(pki().good, {}) == "in");
  CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) == "in");
  const Issued stranger = issue({.common_name = "stranger"}, &pki().root);
  CHECK(gate.verdict_on(stranger, {}) == kNoIssuer);
}

TEST_CASE("trusting an intermediate alone, its CRL keeps the revoked out and lets the others in",
          "[tls][trust]") {
  Gate gate(pki().intermediate.pem(), {pki().intermediate_crl()});
  REQUIRE(gate.loaded());
  CHECK(gate.material().warnings().empty());
  for (const std::vector<const Issued*>& sent : {std::vector<const Issued*>{}, {&pki().intermediate}}) {
    CHECK(gate.verdict_on(pki().good, sent) == "in");
    CHECK(gate.verdict_on(pki().revoked, sent) == kRevoked);
  }
}

TEST_CASE("trusting an intermediate alone, a CRL of the root beside its own changes nothing",
          "[tls][trust]") {
  Gate two_files(pki().intermediate.pem(), {pki().intermediate_crl(), pki().root_crl()});
  REQUIRE(two_files.loaded());
  CHECK(two_files.verdict_on(pki().good, {}) == "in");
  CHECK(two_files.verdict_on(pki().revoked, {}) == kRevoked);

  Gate one_file(pki().intermediate.pem(), {pki().root_crl() + pki().intermediate_crl()});
  REQUIRE(one_file.loaded());
  CHECK(one_file.verdict_on(pki().good, {}) == "in");
  CHECK(one_file.verdict_on(pki().revoked, {}) == kRevoked);

  Gate expired_root(pki().intermediate.pem(), {pki().intermediate_crl(), pki().root_crl(kExpiredCrl)});
  REQUIRE(expired_root.loaded());
  CHECK(expired_root.verdict_on(pki().good, {}) == "in");
}

TEST_CASE("trusting the root alone, the client must send the intermediate", "[tls][trust]") {
  Gate gate(pki().root.pem(), {});
  REQUIRE(gate.loaded());
  CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) == "in");
  CHECK(gate.verdict_on(pki().good, {}) == kNoIssuer);
}

TEST_CASE("trusting the root alone, CRLs of both keep the revoked out and let the others in",
          "[tls][trust]") {
  for (const Names& crls : {Names{pki().root_crl(), pki().intermediate_crl()},
                            Names{pki().root_crl() + pki().intermediate_crl()}}) {
    Gate gate(pki().root.pem(), crls);
    REQUIRE(gate.loaded());
    CHECK(gate.material().warnings().empty());
    CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) == "in");
    CHECK(gate.verdict_on(pki().revoked, {&pki().intermediate}) == kRevoked);
    CHECK(gate.verdict_on(pki().good, {}) == kNoIssuer);
  }
}

TEST_CASE("a CA in the path without a CRL keeps everybody out, and is warned of when it is known",
          "[tls][trust]") {
  Gate no_root_crl(pki().root.pem(), {pki().intermediate_crl()});
  REQUIRE(no_root_crl.loaded());
  CHECK(
      no_root_crl.material().warnings() ==
      Names{
          "listener 'web': ca 'ca.pem': CN=root has no crl among those given: every peer with a certificate "
          "issued by it is rejected"});
  CHECK(no_root_crl.verdict_on(pki().good, {&pki().intermediate}) == kNoCrl);
  CHECK(no_root_crl.verdict_on(pki().revoked, {&pki().intermediate}) == kRevoked);

  Gate no_intermediate_crl(pki().root.pem(), {pki().root_crl()});
  REQUIRE(no_intermediate_crl.loaded());
  CHECK(no_intermediate_crl.material().warnings().empty());
  CHECK(no_intermediate_crl.verdict_on(pki().good, {&pki().intermediate}) == kNoCrl);

  Gate only_root_crl(pki().intermediate.pem(), {pki().root_crl()});
  REQUIRE(only_root_crl.loaded());
  CHECK(only_root_crl.material().warnings().size() == 1);
  CHECK(only_root_crl.verdict_on(pki().good, {}) == kNoCrl);
}

TEST_CASE("with root and intermediate trusted, the intermediate's CRL is enough", "[tls][trust]") {
  Gate gate(pki().root.pem() + pki().intermediate.pem(), {pki().intermediate_crl()});
  REQUIRE(gate.loaded());
  CHECK(gate.verdict_on(pki().good, {}) == "in");
  CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) == "in");
  CHECK(gate.verdict_on(pki().revoked, {}) == kRevoked);
}

TEST_CASE("an expired CRL keeps out whom it covers and is warned of with issuer and date", "[tls][trust]") {
  Gate gate(pki().intermediate.pem(), {pki().intermediate_crl(kExpiredCrl)});
  REQUIRE(gate.loaded());
  const Names warnings = gate.material().warnings();
  REQUIRE(warnings.size() == 1);
  const std::string head = "listener 'web': crl 'crl1.pem' of CN=intermediate expired on ";
  CHECK(warnings[0].find(head + test::date_from_now(-60).substr(0, 11)) == 0);
  CHECK(gate.verdict_on(pki().good, {}) == "CRL has expired");

  Gate root(pki().root.pem(), {pki().intermediate_crl(), pki().root_crl(kExpiredCrl)});
  REQUIRE(root.loaded());
  CHECK(root.material().warnings().size() == 1);
  CHECK(root.verdict_on(pki().good, {&pki().intermediate}) == "CRL has expired");
}

TEST_CASE("a CRL that is not valid yet keeps out whom it covers and is warned of", "[tls][trust]") {
  Gate gate(pki().intermediate.pem(), {pki().intermediate_crl(kEarlyCrl)});
  REQUIRE(gate.loaded());
  const Names warnings = gate.material().warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("listener 'web': crl 'crl1.pem' of CN=intermediate is not valid before ") == 0);
  CHECK(gate.verdict_on(pki().good, {}) == "CRL is not yet valid");
}

TEST_CASE("of an expired and a current CRL of one CA the current one counts", "[tls][trust]") {
  Gate gate(pki().intermediate.pem(), {pki().intermediate_crl(kExpiredCrl) + pki().intermediate_crl()});
  REQUIRE(gate.loaded());
  CHECK(gate.verdict_on(pki().good, {}) == "in");
  CHECK(gate.verdict_on(pki().revoked, {}) == kRevoked);
}

TEST_CASE("a CRL without an end stays valid", "[tls][trust]") {
  Gate gate(pki().intermediate.pem(), {pki().intermediate_crl({-7200, std::nullopt})});
  REQUIRE(gate.loaded());
  CHECK(gate.material().warnings().empty());
  CHECK(gate.verdict_on(pki().good, {}) == "in");
  CHECK(gate.verdict_on(pki().revoked, {}) == kRevoked);
}

TEST_CASE("a file without CRL, or a CRL that its CA did not sign, is refused at load", "[tls][trust]") {
  Gate empty(pki().root.pem(), {"", pki().root.pem()});
  CHECK_FALSE(empty.loaded());
  CHECK(empty.material().errors() ==
        Names{"listener 'web': crl 'crl1.pem': there is no revocation list in it (PEM is expected)",
              "listener 'web': crl 'crl2.pem': there is no revocation list in it (PEM is expected)"});

  const Issued impostor = issue({.common_name = "root", .ca = true});
  Gate forged(pki().root.pem(), {make_crl(impostor, {})});
  CHECK_FALSE(forged.loaded());
  REQUIRE(forged.material().errors().size() == 1);
  CHECK(forged.material().errors()[0].find(
            "listener 'web': crl 'crl1.pem' of CN=root is not signed by that CA: ") == 0);

  Gate renewed(pki().root.pem() + impostor.pem(), {make_crl(impostor, {})});
  CHECK(renewed.loaded());
}

TEST_CASE("a listed intermediate that a given CRL revokes is not trusted", "[tls][trust]") {
  const std::string root_crl = make_crl(pki().root, {&pki().intermediate});
  for (const std::string& ca : {pki().intermediate.pem() + pki().root.pem(), pki().intermediate.pem()}) {
    Gate gate(ca, {root_crl, pki().intermediate_crl()});
    REQUIRE(gate.loaded());
    const Names warnings = gate.material().warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] ==
          "listener 'web': ca 'ca.pem': CN=intermediate is revoked by crl 'crl1.pem' of CN=root and not "
          "trusted");
    CHECK(gate.verdict_on(pki().good, {}) == kNoIssuer);
    CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) != "in");
  }
}

TEST_CASE("a CA that is not valid now is warned of and lets nobody in", "[tls][trust]") {
  const Issued old_ca = issue({.common_name = "old", .ca = true, .valid_from = -7200, .valid_until = -60});
  Gate gate(old_ca.pem(), {});
  REQUIRE(gate.loaded());
  REQUIRE(gate.material().warnings().size() == 1);
  CHECK(gate.material().warnings()[0].find("listener 'web': ca 'ca.pem': CN=old expired on ") == 0);
  CHECK(gate.verdict_on(issue({.common_name = "child"}, &old_ca), {}) == "certificate has expired");
}

TEST_CASE("client verification needs a CA that can be read", "[tls][trust]") {
  Gate gate("no certificate", {});
  CHECK_FALSE(gate.loaded());
  CHECK(gate.material().errors() ==
        Names{"listener 'web': ca 'ca.pem': there is no certificate in it (PEM is expected)"});
  CHECK(gate.material().diagnostics().entries()[0].mark.line == gate.client_auth().ca.mark.line);
  gate.material().files().erase("ca.pem");
  gate.client_auth().crl.push_back(gate.material().text("none.pem"));
  CHECK_FALSE(gate.load());
  CHECK(gate.material().errors() == Names{"listener 'web': 'ca.pem' is not in the bundle",
                                          "listener 'web': 'none.pem' is not in the bundle"});
  gate.client_auth().ca.value.clear();
  CHECK_FALSE(gate.load());
  CHECK(gate.material().errors() == Names{"listener 'web': client_auth needs a ca to verify clients by"});
}

TEST_CASE("depth counts the intermediates between client and anchor", "[tls][trust]") {
  Gate gate(pki().root.pem(), {});
  gate.client_auth().depth = 0;
  REQUIRE(gate.load());
  CHECK(gate.verdict_on(issue({.common_name = "child"}, &pki().root), {}) == "in");
  CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) != "in");
  gate.client_auth().depth = 1;
  REQUIRE(gate.load());
  CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) == "in");
}

TEST_CASE("required refuses clients without certificate, optional lets them in but no wrong ones",
          "[tls][trust]") {
  Gate gate(pki().root.pem(), {});
  const auto anonymous = test::make_client_context();
  const test::Handshake refused = test::shake_hands(anonymous.get(), gate.context());
  CHECK_FALSE(refused.done());
  CHECK(refused.server_error == "peer did not return a certificate");

  gate.client_auth().mode = ClientAuthMode::optional;
  REQUIRE(gate.load());
  CHECK(test::shake_hands(anonymous.get(), gate.context()).done());
  CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) == "in");
  CHECK(gate.verdict_on(issue({.common_name = "self"}), {}) == "self-signed certificate");
}

TEST_CASE("clients are told the names of the trusted CAs", "[tls][trust]") {
  Gate gate(pki().root.pem() + pki().intermediate.pem(), {});
  const auto context = test::make_client_context();
  Names told;
  SSL_CTX_set_cert_cb(
      context.get(),
      [](SSL* ssl, void* argument) {
        const STACK_OF(X509_NAME)* names = SSL_get0_peer_CA_list(ssl);
        for (int i = 0; i < sk_X509_NAME_num(names); ++i) {
          static_cast<Names*>(argument)->push_back(to_text(sk_X509_NAME_value(names, i)));
        }
        return 1;
      },
      &told);
  test::shake_hands(context.get(), gate.context());
  CHECK(told == Names{"CN=root", "CN=intermediate"});
}

TEST_CASE("too many CA names are not told, and clients still get in", "[tls][trust]") {
  std::string bundle = pki().root.pem();
  for (int i = 0; i < 900; ++i) {
    bundle += issue({.common_name = std::string(60, 'x') + std::to_string(i), .ca = true}).pem();
  }
  Gate gate(bundle, {});
  REQUIRE(gate.loaded());
  CHECK(gate.material().warnings() ==
        Names{"listener 'web': ca 'ca.pem': its names are too many to be told to clients"});
  CHECK(gate.verdict_on(pki().good, {&pki().intermediate}) == "in");
}

TEST_CASE("a client's subject is known in RFC 2253 form", "[tls][peer]") {
  const Issued client = issue({.common_name = "J\xC3\xBCrgen, \"boss\"\n"}, &pki().intermediate);
  Gate gate(pki().intermediate.pem(), {});
  const auto context = test::make_client_context();
  SSL_CTX_use_certificate(context.get(), client.certificate.get());
  SSL_CTX_use_PrivateKey(context.get(), client.key.get());
  const test::Handshake handshake = test::shake_hands(context.get(), gate.context());
  REQUIRE(handshake.done());
  CHECK(peer_subject(handshake.server.get()) == "CN=J\xC3\xBCrgen\\, \\\"boss\\\"\\0A");
  CHECK(peer_subject(handshake.client.get()) == "CN=web.example");
}

}  // namespace
}  // namespace tlsproxy::tls
