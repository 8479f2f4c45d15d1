// Which context serves which name, and what its handshakes are like.
#include "tls/context.h"

#include <openssl/err.h>

#include <algorithm>
#include <cerrno>

#include "base/strings.h"
#include "support/catch.h"
#include "support/handshake.h"
#include "support/tls_files.h"
#include "tls/peer.h"

namespace tlsproxy::tls {
namespace {

using config::TlsVersion;
using test::Handshake;
using test::issue;
using test::Issued;
using test::KeyKind;
using test::listener_with;
using test::shake_hands;
using test::TlsFiles;
using Names = std::vector<std::string>;

config::HostPolicy host(TlsFiles& material, const Names& sni, const config::TlsPolicy& policy) {
  config::HostPolicy made;
  for (const std::string& name : sni) made.sni.push_back(material.text(name));
  made.policy = policy;
  made.mark = material.text("").mark;
  return made;
}

// An error without the detail in parentheses.
std::string first_words(const std::string& error) {
  return error.substr(0, error.find(" ("));
}

// The common name of the certificate that a client asking for `sni` gets.
std::string served(const ServerContexts& contexts, const std::string& sni,
                   const std::function<void(SSL_CTX*)>& prepare = {}) {
  const auto client = test::make_client_context();
  if (prepare) prepare(client.get());
  const Handshake handshake = shake_hands(client.get(), contexts.choose(sni).context);
  return handshake.done() ? test::peer_common_name(handshake.client.get())
                          : first_words(handshake.client_error);
}

// --- the choice of certificate and policy --------------------------------------------------------

TEST_CASE("a name is served by its exact certificate, else by a wildcard of one label, else by the first",
          "[tls][context]") {
  TlsFiles material;
  const config::Listener listener = listener_with(
      {material.certificate("first", issue({.common_name = "first", .dns = {"first.example"}})),
       material.certificate("wild", issue({.common_name = "wild", .dns = {"*.Example.COM"}})),
       material.certificate("exact", issue({.common_name = "exact", .dns = {"WWW.example.com"}})),
       material.certificate("cn", issue({.common_name = "Cn.Example"}))});
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(material.warnings().empty());
  CHECK(served(*contexts, "www.example.com") == "exact");
  CHECK(served(*contexts, "api.example.com") == "wild");
  CHECK(served(*contexts, "cn.example") == "Cn.Example");
  CHECK(served(*contexts, "example.com") == "first");
  CHECK(served(*contexts, "a.b.example.com") == "first");
  CHECK(served(*contexts, ".example.com") == "first");
  CHECK(served(*contexts, "other.example") == "first");
  CHECK(served(*contexts, "") == "first");
  CHECK(contexts->choose("www.example.com").policy == &listener.tls.policy);
}

TEST_CASE("RSA and ECDSA certificates of one name are both served, each to the clients that want it",
          "[tls][context]") {
  TlsFiles material;
  const config::Listener listener = listener_with(
      {material.certificate("rsa", issue({.common_name = "rsa", .dns = {"a.example"}, .key = KeyKind::rsa})),
       material.certificate("ec", issue({.common_name = "ec", .dns = {"a.example"}})),
       material.certificate("other", issue({.common_name = "other", .dns = {"b.example"}}))});
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(material.warnings().empty());
  const auto only_rsa = [](SSL_CTX* client) { SSL_CTX_set1_sigalgs_list(client, "RSA-PSS+SHA256"); };
  const auto only_ecdsa = [](SSL_CTX* client) { SSL_CTX_set1_sigalgs_list(client, "ECDSA+SHA256"); };
  for (const std::string name : {"a.example", ""}) {
    CHECK(served(*contexts, name, only_rsa) == "rsa");
    CHECK(served(*contexts, name, only_ecdsa) == "ec");
  }
  CHECK(contexts->choose("a.example").context == contexts->choose("").context);
  CHECK(contexts->choose("b.example").context != contexts->choose("").context);
}

TEST_CASE("certificates that no client would get are warned of", "[tls][context]") {
  TlsFiles material;
  const config::Listener listener = listener_with(
      {material.certificate("one", issue({.common_name = "a.example"})),
       material.certificate("two", issue({.common_name = "two", .dns = {"a.example", "b.example"}})),
       material.certificate("nameless", issue({.common_name = "no host"}))});
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(
      material.warnings() ==
      Names{"listener 'web': certificate 'two.pem' is not used for a.example: certificate 'one.pem' comes "
            "first "
            "with the same type of key",
            "listener 'web': certificate 'nameless.pem' names no host and is not the first: it is not used"});
  CHECK(served(*contexts, "a.example") == "a.example");
  CHECK(served(*contexts, "b.example") == "two");
}

TEST_CASE("names with the same certificates share one context", "[tls][context]") {
  TlsFiles material;
  const config::Listener listener = listener_with({material.certificate(
      "many", issue({.common_name = "many", .dns = {"a.example", "b.example", "*.c.example"}}))});
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(contexts->choose("a.example").context == contexts->choose("b.example").context);
  CHECK(contexts->choose("a.example").context == contexts->choose("x.c.example").context);
  CHECK(contexts->choose("a.example").context == contexts->choose("").context);
}

TEST_CASE("the intermediates of the chain file are sent, and nothing else", "[tls][context]") {
  TlsFiles material;
  const Issued root = issue({.common_name = "root", .ca = true});
  const Issued ca = issue({.common_name = "ca", .ca = true}, &root);
  const Issued leaf = issue({.common_name = "a.example"}, &ca);
  config::Listener listener = listener_with({material.certificate("a", leaf, {&ca})});
  // The CA by which clients are verified is no part of the server's own chain.
  listener.tls.policy.client_auth.mode = config::ClientAuthMode::optional;
  listener.tls.policy.client_auth.ca = material.file("ca.pem", ca.pem() + root.pem());
  auto contexts = material.make(listener);
  REQUIRE(contexts);
  const auto client = test::make_client_context();
  const auto chain_length = [&client, &contexts] {
    const Handshake handshake = shake_hands(client.get(), contexts->choose("").context);
    return sk_X509_num(SSL_get_peer_cert_chain(handshake.client.get()));
  };
  CHECK(chain_length() == 2);
  material.files()["a.pem"] = leaf.pem();
  contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(chain_length() == 1);
}

TEST_CASE("a host policy serves its names, exact before wildcard, by its own rules", "[tls][context]") {
  TlsFiles material;
  const Issued ca = issue({.common_name = "ca", .ca = true});
  const Issued pay_ca = issue({.common_name = "pay ca", .ca = true});
  config::Listener listener = listener_with({material.certificate(
      "all", issue({.common_name = "all", .dns = {"*.example", "pay.example", "x.pay.example"}}))});
  const config::TlsPolicy& base = listener.tls.policy;

  config::TlsPolicy pay = base;
  pay.client_auth.mode = config::ClientAuthMode::required;
  pay.client_auth.ca = material.file("pay-ca.pem", pay_ca.pem());
  config::TlsPolicy wild = base;
  wild.certificates = {material.certificate("wild", issue({.common_name = "wild", .dns = {"nothing.else"}}))};
  wild.min_version = TlsVersion::tls1_3;
  listener.tls.hosts = {host(material, {"*.example", "*.pay.example"}, wild),
                        host(material, {"pay.example"}, pay)};
  const auto contexts = material.make(listener);
  REQUIRE(contexts);

  const auto& hosts = listener.tls.hosts;
  CHECK(contexts->choose("pay.example").policy == &hosts[1].policy);
  CHECK(contexts->choose("a.example").policy == &hosts[0].policy);
  CHECK(contexts->choose("x.pay.example").policy == &hosts[0].policy);
  CHECK(contexts->choose("y.x.pay.example").policy == &listener.tls.policy);
  CHECK(contexts->choose("example").policy == &listener.tls.policy);
  CHECK(contexts->choose("").policy == &listener.tls.policy);

  CHECK(served(*contexts, "a.example") == "wild");
  CHECK(served(*contexts, "") == "all");
  const auto old_client = [](SSL_CTX* client) { SSL_CTX_set_max_proto_version(client, TLS1_2_VERSION); };
  CHECK(served(*contexts, "", old_client) == "all");
  CHECK(served(*contexts, "a.example", old_client) == "tlsv1 alert protocol version");

  const auto with = [](const Issued& identity) {
    return [&identity](SSL_CTX* client) {
      SSL_CTX_use_certificate(client, identity.certificate.get());
      SSL_CTX_use_PrivateKey(client, identity.key.get());
    };
  };
  CHECK(served(*contexts, "pay.example") == "tlsv13 alert certificate required");
  CHECK(served(*contexts, "pay.example", with(issue({.common_name = "payer"}, &pay_ca))) == "all");
  CHECK(served(*contexts, "pay.example", with(issue({.common_name = "payer"}, &ca))) ==
        "tlsv1 alert unknown ca");
}

TEST_CASE("one fault inherited by many host policies is told once", "[tls][context]") {
  TlsFiles material;
  config::Listener listener = listener_with({material.certificate("a", issue({.common_name = "a.example"}))});
  material.files()["a.key"] = "none";
  listener.tls.policy.ciphers = material.text("NO-SUCH-CIPHER");
  listener.tls.hosts = {host(material, {"a.example"}, listener.tls.policy),
                        host(material, {"b.example"}, listener.tls.policy)};
  CHECK(material.make(listener) == nullptr);
  CHECK(material.errors().size() == 2);
}

TEST_CASE("a name given to two hosts is an error", "[tls][context]") {
  TlsFiles material;
  config::Listener listener = listener_with({material.certificate("a", issue({.common_name = "a.example"}))});
  listener.tls.hosts = {host(material, {"a.example"}, listener.tls.policy),
                        host(material, {"b.example", "a.example"}, listener.tls.policy)};
  CHECK(material.make(listener) == nullptr);
  CHECK(material.errors() == Names{"listener 'web': two hosts have the name 'a.example'"});
}

// --- protocol limits -----------------------------------------------------------------------------

config::Listener plain_listener(TlsFiles& material, KeyKind key = KeyKind::p256) {
  return listener_with({material.certificate("a", issue({.common_name = "a.example", .key = key}))});
}

TEST_CASE("versions outside the limits are refused", "[tls][context]") {
  TlsFiles material;
  config::Listener listener = plain_listener(material);
  const auto speak = [](int version) {
    return [version](SSL_CTX* client) {
      SSL_CTX_set_security_level(client, 0);
      SSL_CTX_set_min_proto_version(client, version);
      SSL_CTX_set_max_proto_version(client, version);
    };
  };
  const auto speaks = [&](TlsVersion min, TlsVersion max) {
    listener.tls.policy.min_version = min;
    listener.tls.policy.max_version = max;
    const auto contexts = material.make(listener);
    REQUIRE(contexts);
    std::string spoken;
    if (served(*contexts, "", speak(TLS1_VERSION)) == "a.example") spoken += "1.0 ";
    if (served(*contexts, "", speak(TLS1_1_VERSION)) == "a.example") spoken += "1.1 ";
    if (served(*contexts, "", speak(TLS1_2_VERSION)) == "a.example") spoken += "1.2 ";
    if (served(*contexts, "", speak(TLS1_3_VERSION)) == "a.example") spoken += "1.3 ";
    return spoken;
  };
  CHECK(speaks(TlsVersion::tls1_2, TlsVersion::tls1_3) == "1.2 1.3 ");
  CHECK(material.warnings().empty());
  CHECK(speaks(TlsVersion::tls1_3, TlsVersion::tls1_3) == "1.3 ");
  CHECK(speaks(TlsVersion::tls1_2, TlsVersion::tls1_2) == "1.2 ");
  CHECK(speaks(TlsVersion::tls1_0, TlsVersion::tls1_3) == "1.0 1.1 1.2 1.3 ");
  CHECK(material.warnings() ==
        Names{"listener 'web': min_version allows TLS 1.0 or 1.1: security level 0 is used for it"});
  CHECK(speaks(TlsVersion::tls1_1, TlsVersion::tls1_1) == "1.1 ");
}

TEST_CASE("allowing old versions does not let weak keys in", "[tls][context]") {
  TlsFiles material;
  config::Listener listener = plain_listener(material, KeyKind::weak_rsa);
  listener.tls.policy.min_version = TlsVersion::tls1_0;
  CHECK(material.make(listener) == nullptr);
  CHECK(material.errors() ==
        Names{"listener 'web': certificate 'a.pem' (CN=a.example) is refused: ee key too small"});
}

TEST_CASE("a security level in the cipher list is the operator's own", "[tls][context]") {
  TlsFiles material;
  config::Listener listener = plain_listener(material);
  listener.tls.policy.min_version = TlsVersion::tls1_0;
  listener.tls.policy.ciphers = material.text("HIGH:@SECLEVEL=1");
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(material.warnings().empty());
  CHECK(SSL_CTX_get_security_level(contexts->choose("").context) == 1);
}

TEST_CASE("every unusable setting of a policy is told at its place", "[tls][context]") {
  TlsFiles material;
  config::Listener listener = plain_listener(material);
  config::TlsPolicy& policy = listener.tls.policy;
  policy.ciphers = material.text("NO-SUCH-CIPHER");
  policy.ciphersuites = material.text("TLS_AES_128_GCM_SHA256:TLS_NO_SUCH_SUITE:ECDHE-RSA-AES128-GCM-SHA256");
  policy.groups = material.text("X25519:no-such-group");
  policy.alpn = {material.text("h2"), material.text(""), material.text(std::string(256, 'x'))};
  policy.min_version = TlsVersion::tls1_3;
  policy.max_version = TlsVersion::tls1_2;
  CHECK(material.make(listener) == nullptr);
  const Names errors = material.errors();
  REQUIRE(errors.size() == 7);
  CHECK(errors[0] == "listener 'web': alpn: a protocol name has 1 to 255 bytes");
  CHECK(errors[1] == errors[0]);
  CHECK(errors[2] == "listener 'web': min_version is above max_version");
  CHECK(errors[3] == "listener 'web': ciphers: 'NO-SUCH-CIPHER' cannot be used: no cipher match");
  CHECK(errors[4] ==
        "listener 'web': ciphersuites: 'TLS_NO_SUCH_SUITE' is no TLS 1.3 cipher suite of OpenSSL");
  CHECK(errors[5] ==
        "listener 'web': ciphersuites: 'ECDHE-RSA-AES128-GCM-SHA256' is no TLS 1.3 cipher suite of OpenSSL");
  CHECK(errors[6].find("listener 'web': groups: 'X25519:no-such-group' cannot be used: ") == 0);
  const auto& entries = material.diagnostics().entries();
  CHECK(entries[1].mark.line == policy.alpn[2].mark.line);
  CHECK(entries[2].mark.line == listener.tls.mark.line);
  CHECK(entries[3].mark.line == policy.ciphers.mark.line);
  CHECK(entries[6].mark.line == policy.groups.mark.line);
  CHECK(ERR_peek_error() == 0);
}

TEST_CASE("a policy without certificates is an error", "[tls][context]") {
  TlsFiles material;
  const config::Listener listener = listener_with({});
  CHECK(material.make(listener) == nullptr);
  CHECK(material.errors() == Names{"listener 'web': tls needs at least one certificate"});
}

TEST_CASE("ciphers, suites and groups are those of the policy", "[tls][context]") {
  TlsFiles material;
  config::Listener listener = plain_listener(material);
  listener.tls.policy.ciphers = material.text("ECDHE-ECDSA-AES256-GCM-SHA384");
  listener.tls.policy.ciphersuites = material.text("TLS_CHACHA20_POLY1305_SHA256");
  listener.tls.policy.groups = material.text("P-384");
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  const auto client = test::make_client_context();
  Handshake handshake = shake_hands(client.get(), contexts->choose("").context);
  REQUIRE(handshake.done());
  CHECK(SSL_CIPHER_get_name(SSL_get_current_cipher(handshake.server.get())) ==
        std::string("TLS_CHACHA20_POLY1305_SHA256"));
  CHECK(SSL_get_negotiated_group(handshake.server.get()) == NID_secp384r1);
  SSL_CTX_set_max_proto_version(client.get(), TLS1_2_VERSION);
  handshake = shake_hands(client.get(), contexts->choose("").context);
  REQUIRE(handshake.done());
  CHECK(SSL_CIPHER_get_name(SSL_get_current_cipher(handshake.server.get())) ==
        std::string("ECDHE-ECDSA-AES256-GCM-SHA384"));
}

TEST_CASE("contexts forbid renegotiation and compression and take a missing close_notify as an error",
          "[tls][context]") {
  TlsFiles material;
  const config::Listener listener = plain_listener(material);
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  SSL_CTX* context = contexts->choose("").context;
  const std::uint64_t options = SSL_CTX_get_options(context);
  CHECK((options & SSL_OP_NO_RENEGOTIATION) != 0);
  CHECK((options & SSL_OP_NO_COMPRESSION) != 0);
  CHECK((options & SSL_OP_IGNORE_UNEXPECTED_EOF) == 0);
  CHECK((options & SSL_OP_NO_TICKET) == 0);
  CHECK((SSL_CTX_get_mode(context) & SSL_MODE_ENABLE_PARTIAL_WRITE) != 0);
  CHECK((SSL_CTX_get_mode(context) & SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER) == 0);
  CHECK((SSL_CTX_get_mode(context) & SSL_MODE_RELEASE_BUFFERS) == 0);
  CHECK(SSL_CTX_get_session_cache_mode(context) == SSL_SESS_CACHE_OFF);
  CHECK(SSL_CTX_get_num_tickets(context) == 1);
  CHECK(SSL_CTX_get_max_early_data(context) == 0);
}

// --- ALPN ----------------------------------------------------------------------------------------

std::string negotiated(const ServerContexts& contexts, const std::string& wire) {
  const auto client = test::make_client_context();
  SSL_CTX_set_alpn_protos(client.get(), reinterpret_cast<const unsigned char*>(wire.data()),
                          static_cast<unsigned int>(wire.size()));
  const Handshake handshake = shake_hands(client.get(), contexts.choose("").context);
  if (!handshake.done()) return "refused: " + first_words(handshake.client_error);
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(handshake.server.get(), &protocol, &size);
  return {reinterpret_cast<const char*>(protocol), size};
}

TEST_CASE("the server's order of protocols decides, and a client with none of them is told so",
          "[tls][context]") {
  TlsFiles material;
  config::Listener listener = plain_listener(material);
  listener.tls.policy.alpn = {material.text("h2"), material.text("http/1.1")};
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(negotiated(*contexts, "\x08http/1.1\x02h2") == "h2");
  CHECK(negotiated(*contexts,
                   "\x03"
                   "foo"
                   "\x08http/1.1") == "http/1.1");
  CHECK(negotiated(*contexts,
                   "\x03"
                   "foo"
                   "\x01h") == "refused: tlsv1 alert no application protocol");
  CHECK(negotiated(*contexts, "\x02H2") == "refused: tlsv1 alert no application protocol");
  CHECK(negotiated(*contexts, "").empty());
}

TEST_CASE("a policy without protocols negotiates none and refuses nobody", "[tls][context]") {
  TlsFiles material;
  const config::Listener listener = plain_listener(material);
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  CHECK(negotiated(*contexts, "\x02h2").empty());
}

// --- resumption ----------------------------------------------------------------------------------

// A client that keeps the last session it was given.
struct RememberingClient {
  explicit RememberingClient(int version) : context(test::make_client_context()) {
    SSL_CTX_set_max_proto_version(context.get(), version);
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_set_app_data(context.get(), this);
    SSL_CTX_sess_set_new_cb(context.get(), [](SSL* ssl, SSL_SESSION* given) {
      auto* self = static_cast<RememberingClient*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
      self->session.reset(given);
      ++self->sessions;
      return 1;
    });
  }
  Handshake shake(SSL_CTX* server) {
    sessions = 0;
    Handshake handshake = shake_hands(context.get(), server, [this](SSL* ssl) {
      if (session) SSL_set_session(ssl, session.get());
    });
    // OpenSSL spoils the session of a connection that is freed without an orderly end.
    SSL_set_shutdown(handshake.client.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    return handshake;
  }
  test::SslContextPtr context;
  test::SessionPtr session;
  int sessions = 0;
};

TEST_CASE("a client with a certificate resumes by ticket, and its subject is still known", "[tls][context]") {
  TlsFiles material;
  const Issued ca = issue({.common_name = "ca", .ca = true});
  const Issued alice = issue({.common_name = "alice"}, &ca);
  config::Listener listener = plain_listener(material);
  listener.tls.policy.client_auth.mode = config::ClientAuthMode::required;
  listener.tls.policy.client_auth.ca = material.file("ca.pem", ca.pem());
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    RememberingClient client(version);
    SSL_CTX_use_certificate(client.context.get(), alice.certificate.get());
    SSL_CTX_use_PrivateKey(client.context.get(), alice.key.get());
    for (int round = 0; round < 5; ++round) {
      const Handshake handshake = client.shake(contexts->choose("").context);
      REQUIRE(handshake.done());
      CHECK(SSL_session_reused(handshake.server.get()) == (round > 0 ? 1 : 0));
      CHECK(peer_subject(handshake.server.get()) == "CN=alice");
      if (round == 0) CHECK(client.sessions == 1);
    }
  }
}

std::string id_context(SSL_CTX* context, const Issued& certificate) {
  const auto client = test::make_client_context();
  SSL_CTX_use_certificate(client.get(), certificate.certificate.get());
  SSL_CTX_use_PrivateKey(client.get(), certificate.key.get());
  const Handshake handshake = shake_hands(client.get(), context);
  REQUIRE(handshake.done());
  unsigned int size = 0;
  const unsigned char* id = SSL_SESSION_get0_id_context(SSL_get0_session(handshake.server.get()), &size);
  return base::to_hex({reinterpret_cast<const char*>(id), size});
}

TEST_CASE("the session id context tells apart whatever decides who gets in", "[tls][context]") {
  TlsFiles material;
  const Issued ca = issue({.common_name = "ca", .ca = true});
  const Issued alice = issue({.common_name = "alice"}, &ca);
  config::Listener listener = plain_listener(material);
  config::ClientAuth& client_auth = listener.tls.policy.client_auth;
  client_auth.mode = config::ClientAuthMode::required;
  client_auth.ca = material.file("ca.pem", ca.pem());
  client_auth.crl = {material.file("crl.pem", make_crl(ca, {}))};
  listener.tls.hosts = {host(material, {"pay.example"}, listener.tls.policy),
                        host(material, {"shop.example"}, listener.tls.policy)};
  const auto id_of = [&](const std::string& sni) {
    const auto contexts = material.make(listener);
    REQUIRE(contexts);
    return id_context(contexts->choose(sni).context, alice);
  };
  const std::string id = id_of("");
  CHECK(id.size() == 64);
  CHECK(id_of("") == id);
  CHECK(id_of("pay.example") != id);
  CHECK(id_of("pay.example") != id_of("shop.example"));

  std::vector<std::string> others{id};
  const auto check_new = [&] {
    others.push_back(id_of(""));
    CHECK(std::count(others.begin(), others.end(), others.back()) == 1);
  };
  material.files()["crl.pem"] = make_crl(ca, {}, {-3600, 90000});
  check_new();
  client_auth.crl.clear();
  check_new();
  material.files()["ca.pem"] += issue({.common_name = "second", .ca = true}).pem();
  check_new();
  client_auth.depth = 2;
  check_new();
  client_auth.mode = config::ClientAuthMode::optional;
  check_new();
  listener.name = "other";
  check_new();
  const Issued renewed = issue({.common_name = "a.example"});
  material.files()["a.pem"] = renewed.pem();
  material.files()["a.key"] = renewed.key_pem();
  check_new();
}

TEST_CASE("a session of one name's policy is not resumed under another's", "[tls][context]") {
  TlsFiles material;
  const Issued ca = issue({.common_name = "ca", .ca = true});
  config::Listener listener = plain_listener(material);
  config::TlsPolicy pay = listener.tls.policy;
  pay.client_auth.mode = config::ClientAuthMode::required;
  pay.client_auth.ca = material.file("ca.pem", ca.pem());
  listener.tls.hosts = {host(material, {"pay.example"}, pay)};
  const auto contexts = material.make(listener);
  REQUIRE(contexts);
  // Even when both contexts could open each other's tickets, as with keys shared by a fleet.
  unsigned char keys[80] = {7};
  SSL_CTX_set_tlsext_ticket_keys(contexts->choose("").context, keys, sizeof(keys));
  SSL_CTX_set_tlsext_ticket_keys(contexts->choose("pay.example").context, keys, sizeof(keys));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    RememberingClient client(version);
    REQUIRE(client.shake(contexts->choose("").context).done());
    CHECK_FALSE(client.shake(contexts->choose("pay.example").context).done());
    RememberingClient same(version);
    REQUIRE(same.shake(contexts->choose("").context).done());
    CHECK(SSL_session_reused(same.shake(contexts->choose("").context).server.get()) == 1);
  }
}

// --- the certificate made at start ---------------------------------------------------------------

TEST_CASE("a self-signed certificate serves localhost, loopback addresses and the listener's name",
          "[tls][self_signed]") {
  config::Certificate certificate;
  certificate.self_signed = true;
  certificate.mark = {12, 9};
  const config::Listener listener = listener_with({certificate});
  config::DiskFiles disk("/nonexistent");
  config::Diagnostics diagnostics("test.yaml");
  const auto contexts = ServerContexts::make(listener, disk, diagnostics);
  REQUIRE(contexts);
  CHECK(diagnostics.entries().empty());
  CHECK(served(*contexts, "localhost") == "web");

  const auto client = test::make_client_context();
  const Handshake handshake = shake_hands(client.get(), contexts->choose("").context);
  REQUIRE(handshake.done());
  X509* shown = SSL_get0_peer_certificate(handshake.client.get());
  CHECK(X509_check_host(shown, "localhost", 0, 0, nullptr) == 1);
  CHECK(X509_check_host(shown, "web", 0, 0, nullptr) == 1);
  CHECK(X509_check_ip_asc(shown, "127.0.0.1", 0) == 1);
  CHECK(X509_check_ip_asc(shown, "::1", 0) == 1);
  CHECK(X509_check_host(shown, "other", 0, 0, nullptr) == 0);
  CHECK(X509_check_ca(shown) == 0);
  CHECK(X509_check_purpose(shown, X509_PURPOSE_SSL_SERVER, 0) == 1);
  CHECK(X509_check_purpose(shown, X509_PURPOSE_SSL_CLIENT, 0) == 0);
  CHECK(ERR_peek_error() == 0);

  // A worker gets the same certificate from the bundle.
  config::RecordedFiles bundle(disk.contents());
  const auto again = ServerContexts::make(listener, bundle, diagnostics);
  REQUIRE(again);
  const Handshake second = shake_hands(client.get(), again->choose("").context);
  REQUIRE(second.done());
  CHECK(X509_cmp(shown, SSL_get0_peer_certificate(second.client.get())) == 0);
}

TEST_CASE("a self-signed certificate is made for any listener name and is never twice the same",
          "[tls][self_signed]") {
  for (const std::string& name : {std::string("my_listener"), std::string(200, 'x'), std::string("-web"),
                                  std::string("a..b"), std::string("localhost"), std::string()}) {
    const auto made = make_self_signed(name);
    REQUIRE(made);
    CHECK(*made != *make_self_signed(name));
  }
}

TEST_CASE("taking OpenSSL's errors empties the queue and tells the oldest ones", "[tls][errors]") {
  OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS,
                   nullptr);  // loads the texts of the errors, as making a context does
  ERR_clear_error();
  CHECK(take_errors().empty());
  ERR_raise(ERR_LIB_SSL, SSL_R_NO_CIPHER_MATCH);
  ERR_raise(ERR_LIB_SSL, SSL_R_NO_CIPHER_MATCH);
  ERR_raise_data(ERR_LIB_SSL, SSL_R_BAD_LENGTH, "with\ndetail");
  ERR_raise(ERR_LIB_SYS, ENOENT);
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_PACKET);
  CHECK(take_errors() == "no cipher match; bad length (with\\x0adetail); No such file or directory");
  CHECK(ERR_peek_error() == 0);
}

}  // namespace
}  // namespace tlsproxy::tls
