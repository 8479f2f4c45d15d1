// Handshakes with servers of a backend, as the proxy's client side makes them.
#include <openssl/err.h>

#include <cstdlib>

#include "support/catch.h"
#include "support/handshake.h"
#include "support/tls_files.h"
#include "tls/context.h"
#include "tls/peer.h"

namespace tlsproxy::tls {
namespace {

using test::Handshake;
using test::issue;
using test::Issued;
using test::shake_hands;
using test::TlsFiles;
using Names = std::vector<std::string>;

config::Server server_named(const std::string& host) {
  config::Server server;
  server.text = {host + ":443", {30, 9}};
  server.at = config::HostPort{host, 443};
  return server;
}

config::Server server_at(const std::string& address) {
  config::Server server;
  server.text = {address, {31, 9}};
  server.at = *os::SocketAddress::parse(address);
  return server;
}

// A backend "app" with one server, "app.corp.internal", verified by the CA of the test.
struct Setup {
  Setup() {
    backend.name = "app";
    backend.mark = {20, 3};
    backend.servers = {server_named("app.corp.internal")};
    backend.tls.emplace();
    backend.tls->mark = {21, 5};
    backend.tls->ca = material.file("ca.pem", ca.pem());
  }

  // "in", or why the backend's certificate is not accepted.
  std::string verdict_on(const Issued& shown, const config::Server& server) {
    const auto context = material.make(backend);
    REQUIRE(context);
    CHECK(ERR_peek_error() == 0);
    const auto peer = test::make_server_context(shown);
    const std::string name = context->expected_name(server);
    const Handshake handshake =
        shake_hands(context->get(), peer.get(), [&name](SSL* ssl) { REQUIRE(expect_name(ssl, name)); });
    const char* sni = SSL_get_servername(handshake.server.get(), TLSEXT_NAMETYPE_host_name);
    asked_for = sni != nullptr ? sni : "";
    if (handshake.done()) return "in";
    CHECK(handshake.client_error == "certificate verify failed");
    return verify_error(handshake.client.get());
  }
  std::string verdict_on(const Issued& shown) { return verdict_on(shown, backend.servers.front()); }

  Issued ca = issue({.common_name = "internal ca", .ca = true});
  TlsFiles material;
  config::Backend backend;
  std::string asked_for;  // SNI of the last handshake
};

TEST_CASE("a backend must prove the name of its server", "[tls][client_context]") {
  Setup setup;
  CHECK(setup.verdict_on(issue({.common_name = "x", .dns = {"app.corp.internal"}}, &setup.ca)) == "in");
  CHECK(setup.asked_for == "app.corp.internal");
  CHECK(setup.verdict_on(issue({.common_name = "x", .dns = {"*.corp.internal"}}, &setup.ca)) == "in");
  CHECK(setup.verdict_on(issue({.common_name = "x", .dns = {"a*.corp.internal"}}, &setup.ca)) ==
        "hostname mismatch");
  CHECK(setup.verdict_on(issue({.common_name = "x", .dns = {"other.internal"}}, &setup.ca)) ==
        "hostname mismatch");
  CHECK(setup.verdict_on(issue({.common_name = "x", .dns = {"app.corp.internal"}})) ==
        "self-signed certificate");
  CHECK(setup.material.warnings().empty());
}

TEST_CASE("server_name replaces the server's own name", "[tls][client_context]") {
  Setup setup;
  setup.backend.tls->server_name = setup.material.text("front.internal");
  CHECK(setup.verdict_on(issue({.dns = {"front.internal"}}, &setup.ca)) == "in");
  CHECK(setup.asked_for == "front.internal");
  CHECK(setup.verdict_on(issue({.dns = {"app.corp.internal"}}, &setup.ca)) == "hostname mismatch");
}

TEST_CASE("a server given by address must prove the address and is sent no name", "[tls][client_context]") {
  Setup setup;
  const Issued shown = issue({.dns = {"app.corp.internal"}, .ips = {"192.0.2.5", "2001:db8::5"}}, &setup.ca);
  setup.backend.servers = {server_at("192.0.2.5:443"), server_at("[2001:db8::5]:443"),
                           server_at("192.0.2.6:443")};
  CHECK(setup.verdict_on(shown, setup.backend.servers[0]) == "in");
  CHECK(setup.asked_for.empty());
  CHECK(setup.verdict_on(shown, setup.backend.servers[1]) == "in");
  CHECK(setup.asked_for.empty());
  CHECK(setup.verdict_on(shown, setup.backend.servers[2]) == "IP address mismatch");
}

TEST_CASE("a trailing dot is no part of the name that is sent and verified", "[tls][client_context]") {
  Setup setup;
  setup.backend.servers = {server_named("app.corp.internal.")};
  CHECK(setup.verdict_on(issue({.dns = {"app.corp.internal"}}, &setup.ca)) == "in");
  CHECK(setup.asked_for == "app.corp.internal");
}

TEST_CASE("a unix socket has no name to prove: server_name must give one", "[tls][client_context]") {
  Setup setup;
  setup.backend.servers.push_back(server_at("unix:/run/app.sock"));
  CHECK(setup.material.make(setup.backend) == nullptr);
  CHECK(setup.material.errors() ==
        Names{"backend 'app': server 'unix:/run/app.sock' has no name to verify: tls needs a server_name"});
  CHECK(setup.material.diagnostics().entries()[0].mark.line == 31);
  setup.backend.tls->server_name = setup.material.text("app.corp.internal");
  CHECK(setup.verdict_on(issue({.dns = {"app.corp.internal"}}, &setup.ca), setup.backend.servers[1]) == "in");
}

TEST_CASE("a name that OpenSSL would read as a pattern is not demanded", "[tls][peer]") {
  const auto context = test::make_client_context();
  const test::SslPtr ssl(SSL_new(context.get()));
  CHECK_FALSE(expect_name(ssl.get(), ".internal"));
  CHECK(expect_name(ssl.get(), ""));
}

TEST_CASE("without verification anyone is accepted, and that is warned of", "[tls][client_context]") {
  Setup setup;
  setup.backend.tls->verify = false;
  setup.backend.servers.push_back(server_at("unix:/run/app.sock"));
  const Issued stranger = issue({.dns = {"other"}});
  CHECK(setup.verdict_on(stranger) == "in");
  CHECK(setup.asked_for == "app.corp.internal");
  CHECK(setup.verdict_on(stranger, setup.backend.servers[1]) == "in");
  REQUIRE(setup.material.warnings().size() == 1);
  CHECK(setup.material.warnings()[0].find("backend 'app': certificates of its servers are not verified") ==
        0);
}

TEST_CASE("a revoked backend is rejected", "[tls][client_context]") {
  Setup setup;
  const Issued good = issue({.dns = {"app.corp.internal"}}, &setup.ca);
  const Issued revoked = issue({.dns = {"app.corp.internal"}}, &setup.ca);
  setup.backend.tls->crl = {setup.material.file("crl.pem", make_crl(setup.ca, {&revoked}))};
  CHECK(setup.verdict_on(good) == "in");
  CHECK(setup.verdict_on(revoked) == "certificate revoked");
}

TEST_CASE("depth limits the intermediates before a backend's anchor", "[tls][client_context]") {
  Setup setup;
  const Issued intermediate = issue({.common_name = "intermediate", .ca = true}, &setup.ca);
  const Issued leaf = issue({.dns = {"app.corp.internal"}}, &intermediate);
  const auto verdict = [&](int depth) {
    setup.backend.tls->depth = depth;
    const auto context = setup.material.make(setup.backend);
    REQUIRE(context);
    const auto peer = test::make_server_context(leaf);
    SSL_CTX_add1_chain_cert(peer.get(), intermediate.certificate.get());
    return shake_hands(context->get(), peer.get()).done();
  };
  CHECK(verdict(1));
  CHECK_FALSE(verdict(0));
}

TEST_CASE("a backend that asks is shown the client certificate", "[tls][client_context]") {
  Setup setup;
  const Issued proxy = issue({.common_name = "proxy"}, &setup.ca);
  setup.backend.tls->certificate = setup.material.certificate("proxy", proxy);
  const auto context = setup.material.make(setup.backend);
  REQUIRE(context);
  const auto peer = test::make_server_context(issue({.dns = {"app.corp.internal"}}, &setup.ca));
  SSL_CTX_set_verify(peer.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(peer.get()), setup.ca.certificate.get());
  const Handshake handshake = shake_hands(context->get(), peer.get());
  REQUIRE(handshake.done());
  CHECK(peer_subject(handshake.server.get()) == "CN=proxy");

  setup.material.files()["proxy.key"] = issue({}).key_pem();
  CHECK(setup.material.make(setup.backend) == nullptr);
  CHECK(
      setup.material.errors() ==
      Names{"backend 'app': key 'proxy.key' does not match the first certificate of 'proxy.pem' (CN=proxy)"});
}

TEST_CASE("protocols and versions towards a backend are those of its policy", "[tls][client_context]") {
  Setup setup;
  setup.backend.tls->alpn = {setup.material.text("postgresql"), setup.material.text("h2")};
  setup.backend.tls->max_version = config::TlsVersion::tls1_2;
  const auto context = setup.material.make(setup.backend);
  REQUIRE(context);
  const auto peer = test::make_server_context(issue({.dns = {"app.corp.internal"}}, &setup.ca));
  std::string offered;
  SSL_CTX_set_alpn_select_cb(
      peer.get(),
      [](SSL*, const unsigned char**, unsigned char*, const unsigned char* in, unsigned int size,
         void* argument) {
        static_cast<std::string*>(argument)->assign(reinterpret_cast<const char*>(in), size);
        return SSL_TLSEXT_ERR_NOACK;
      },
      &offered);
  const Handshake handshake = shake_hands(context->get(), peer.get());
  REQUIRE(handshake.done());
  CHECK(offered == "\x0apostgresql\x02h2");
  CHECK(SSL_version(handshake.client.get()) == TLS1_2_VERSION);
  CHECK(SSL_CTX_get_session_cache_mode(context->get()) == SSL_SESS_CACHE_OFF);
}

// Sets SSL_CERT_FILE for one test.
class BundleVariable {
 public:
  explicit BundleVariable(const char* value) {
    if (const char* old = std::getenv("SSL_CERT_FILE")) before_ = old;
    ::setenv("SSL_CERT_FILE", value, 1);
  }
  BundleVariable(const BundleVariable&) = delete;
  BundleVariable& operator=(const BundleVariable&) = delete;
  ~BundleVariable() {
    if (before_.empty()) {
      ::unsetenv("SSL_CERT_FILE");
    } else {
      ::setenv("SSL_CERT_FILE", before_.c_str(), 1);
    }
  }

 private:
  std::string before_;
};

TEST_CASE("without a ca the system's bundle decides, read like any other file", "[tls][client_context]") {
  Setup setup;
  setup.backend.tls->ca = {};
  const Issued shown = issue({.dns = {"app.corp.internal"}}, &setup.ca);
  const Issued old_ca = issue({.common_name = "old", .ca = true, .valid_from = -7200, .valid_until = -60});
  {
    const BundleVariable bundle("/trust/bundle.pem");
    setup.material.files()["/trust/bundle.pem"] = setup.ca.pem() + old_ca.pem();
    CHECK(setup.verdict_on(shown) == "in");
    CHECK(setup.material.warnings().empty());
    setup.material.files().erase("/trust/bundle.pem");
    CHECK(setup.material.make(setup.backend) == nullptr);
    CHECK(setup.material.errors() ==
          Names{"backend 'app': '/trust/bundle.pem' is not in the bundle; without the "
                "system's bundle tls needs a ca"});
    CHECK(setup.material.diagnostics().entries()[0].mark.line == 21);
  }
  const BundleVariable none("");
  setup.material.files()["/etc/ssl/certs/ca-certificates.crt"] = setup.ca.pem();
  CHECK(setup.verdict_on(shown) == "in");
}

TEST_CASE("every fault of a backend's TLS is told at once", "[tls][client_context]") {
  Setup setup;
  config::ClientTls& tls = *setup.backend.tls;
  tls.ciphers = setup.material.text("NO-SUCH-CIPHER");
  tls.groups = setup.material.text("no-such-group");
  tls.crl = {setup.material.file("crl.pem", "")};
  tls.certificate = setup.material.certificate("proxy", issue({}));
  setup.material.files().erase("proxy.key");
  CHECK(setup.material.make(setup.backend) == nullptr);
  CHECK(setup.material.errors().size() == 4);
  CHECK(ERR_peek_error() == 0);
}

}  // namespace
}  // namespace tlsproxy::tls
