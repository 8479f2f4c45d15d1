#include "config/yaml_loader.h"

#include <string>

#include "config/loading.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::config;

namespace {

Config sound(std::string_view text) {
  Loaded loaded = load(text);
  INFO(joined(loaded.lines));
  REQUIRE(loaded.lines.empty());
  return loaded.config;
}

// One listener in flow style with these keys after its name, and two backends that routes may name.
std::string listener(std::string_view keys) {
  return "listeners:\n  - {name: l, " + std::string(keys) + "}\nbackends: {web: \"a:1\", other: \"b:1\"}\n";
}

// The same with `bind` and with a use of both backends.
std::string routed(std::string_view keys) {
  return listener("bind: \":1\", " + std::string(keys)) +
         "resolver: {ipv6: true}\n";  // keys after it are read as well
}

std::string backend(std::string_view value) {
  return "listeners: [{name: l, bind: \":1\", to: b}]\nbackends:\n  b: " + std::string(value) + "\n";
}

std::string told(std::string_view text) {
  return joined(load(text).lines);
}

}  // namespace

TEST_CASE("what is not given has its default", "[loader]") {
  const Config config = sound("listeners: [{name: l, bind: \":1\", to: b}]\nbackends: {b: \"a:1\"}\n");
  const Config defaults;
  CHECK(config.workers == 0);
  CHECK(config.drain == defaults.drain);
  CHECK_FALSE(config.drain_after_reload.has_value());
  CHECK(config.buffer_memory == defaults.buffer_memory);
  CHECK(config.log.path.value == "stderr");
  CHECK_FALSE(config.log.access.has_value());
  const Listener& l = config.listeners.at(0);
  CHECK(l.tls_mode == TlsMode::none);
  CHECK(l.half_close);
  CHECK(l.preread_buffer == 16384);
  CHECK(l.timeouts.idle == 10min);
  CHECK(l.bind.at(0).backlog == 511);
  CHECK(l.bind.at(0).v6only);
  CHECK(l.routes.size() == 1);
  const Server& server = config.backends.at(0).servers.at(0);
  CHECK(server.weight == 1);
  CHECK(server.max_fails == 1);
  CHECK(server.fail_timeout == 10s);
}

TEST_CASE("every key arrives where it belongs", "[loader]") {
  const Config config = sound(R"(
workers: 3
user: u
group: g
pid_file: run/p.pid
drain: 1m
drain_after_reload: 2h
buffer_memory: 64M
log: {level: debug, path: e.log, access: {path: a.log, format: json}}
resolver: {servers: ["127.0.0.1:5353", 192.0.2.1], timeout: 1s, valid: 2s, ipv4: off, ipv6: yes}
listeners:
  - name: l
    bind: [{address: "[::1]:4443", backlog: 9, v6only: false}, "127.0.0.1:1-2"]
    half_close: no
    preread_buffer: 8k
    timeouts: {preread: 1s, handshake: 2s, connect: 3s, idle: 4s, half_close: 5s, linger: 6s}
    tls:
      certificates: [{chain: c.pem, key: k.pem, password_file: p.txt}, {chain: both.pem}, {self_signed: true}]
      min_version: TLSv1
      max_version: TLSv1.2
      ciphers: C
      ciphersuites: S
      groups: G
      alpn: [h2, http/1.1]
      client_auth: {mode: optional, ca: ca.pem, depth: 3, crl: r.pem}
    routes:
      - {sni: [A.example., "*.b.example"], alpn: h2, source: 192.0.2.0/24, tls: true, to: web}
      - {to: hello}
backends:
  web:
    servers:
      - {address: "App.internal:80", weight: 2, max_fails: 0, fail_timeout: 3s, backup: true}
      - {address: "unix:/x", down: true}
      - "[::1]:8080"
    tries: 2
    tls:
      server_name: W.Internal
      verify: true
      ca: i.pem
      crl: [r1.pem, r2.pem]
      depth: 1
      certificate: {chain: me.pem}
      min_version: TLSv1.1
      max_version: TLSv1.1
      ciphers: C2
      ciphersuites: S2
      groups: G2
      alpn: x
  hello: {respond: "a\nb\0"}
)");
  CHECK(config.workers == 3);
  CHECK(config.user.value == "u");
  CHECK(config.user.mark.line == 3);
  CHECK(config.group.value == "g");
  CHECK(config.pid_file.value == "run/p.pid");
  CHECK(config.drain == 1min);
  CHECK(config.drain_after_reload == Milliseconds(2h));
  CHECK(config.buffer_memory == 64U * 1024 * 1024);
  CHECK(config.log.level == LogLevel::debug);
  CHECK(config.log.access.value().format == LogFormat::json);
  CHECK(config.resolver.servers.at(1).to_string() == "192.0.2.1:53");
  CHECK(config.resolver.valid == 2s);
  CHECK_FALSE(config.resolver.ipv4);

  const Listener& l = config.listeners.at(0);
  REQUIRE(l.bind.size() == 3);
  CHECK(l.bind[0].backlog == 9);
  CHECK_FALSE(l.bind[0].v6only);
  CHECK(l.bind[2].address.to_string() == "127.0.0.1:2");
  CHECK(l.bind[2].text.value == "127.0.0.1:1-2");
  CHECK(l.bind[2].text.mark.line == 13);
  CHECK_FALSE(l.half_close);
  CHECK(l.preread_buffer == 8192);
  CHECK(l.timeouts.preread == 1s);
  CHECK(l.timeouts.handshake == 2s);
  CHECK(l.timeouts.connect == 3s);
  CHECK(l.timeouts.idle == 4s);
  CHECK(l.timeouts.half_close == 5s);
  CHECK(l.timeouts.linger == 6s);
  CHECK(l.tls_mode == TlsMode::terminate);
  const TlsPolicy& policy = l.tls.policy;
  REQUIRE(policy.certificates.size() == 3);
  CHECK(policy.certificates[0].password_file.value == "p.txt");
  CHECK(policy.certificates[1].key.value == "both.pem");
  CHECK(policy.certificates[2].self_signed);
  CHECK(policy.min_version == TlsVersion::tls1_0);
  CHECK(policy.max_version == TlsVersion::tls1_2);
  CHECK(policy.ciphers.value == "C");
  CHECK(policy.ciphersuites.value == "S");
  CHECK(policy.groups.value == "G");
  CHECK(policy.alpn.at(1).value == "http/1.1");
  CHECK(policy.client_auth.mode == ClientAuthMode::optional);
  CHECK(policy.client_auth.depth == 3);
  CHECK(policy.client_auth.crl.at(0).value == "r.pem");
  REQUIRE(l.routes.size() == 2);
  CHECK(l.routes[0].sni.at(0).value == "a.example");
  CHECK(l.routes[0].alpn.at(0).value == "h2");
  CHECK(l.routes[0].source.at(0).to_string() == "192.0.2.0/24");
  CHECK(l.routes[0].tls == true);
  CHECK_FALSE(l.routes[1].tls.has_value());

  const Backend& web = config.backends.at(0);
  CHECK(std::get<HostPort>(web.servers.at(0).at).host == "app.internal");
  CHECK(web.servers[0].text.value == "App.internal:80");
  CHECK(web.servers[0].weight == 2);
  CHECK(web.servers[0].max_fails == 0);
  CHECK(web.servers[0].fail_timeout == 3s);
  CHECK(web.servers[0].backup);
  CHECK(web.servers[1].down);
  CHECK(web.tries == 2);
  const ClientTls& tls = web.tls.value();
  CHECK(tls.server_name.value == "w.internal");
  CHECK(tls.ca.value == "i.pem");
  CHECK(tls.crl.size() == 2);
  CHECK(tls.depth == 1);
  CHECK(tls.certificate.value().key.value == "me.pem");
  CHECK(tls.min_version == TlsVersion::tls1_1);
  CHECK(tls.alpn.at(0).value == "x");
  CHECK(config.backends.at(1).kind == BackendKind::respond);
  CHECK(config.backends.at(1).respond == std::string("a\nb\0", 4));
}

TEST_CASE("all errors of a file are told at once, in the order of their places", "[loader]") {
  const auto loaded = load(
      "workers: many\ndrain: 5\nlog: {level: loud}\n"
      "listeners:\n  - {name: l, bind: \":99999\", to: nowhere}\n"
      "backends:\n  b: {servers: [\"a:0\"], tries: x}\n");
  const char* places[] = {"x:1:10: error: workers",
                          "x:2:8: error: drain",
                          "x:3:14: error: level",
                          "x:5:21: error: bind",
                          "x:5:35: error: there is no backend 'nowhere'",
                          "x:7:17: error: servers",
                          "x:7:32: error: tries"};
  INFO(joined(loaded.lines));
  REQUIRE(loaded.lines.size() == std::size(places));
  for (std::size_t i = 0; i < std::size(places); ++i) CHECK(loaded.lines[i].starts_with(places[i]));
}

TEST_CASE("a value of the wrong kind is told with what is wanted", "[loader]") {
  CHECK(contains(told("listeners: 5\n"), "x:1:12: error: listeners: a list is expected, not a single value"));
  CHECK(contains(told("listeners: {name: l}\n"), "a list is expected, not a map"));
  CHECK(contains(told("listeners: [l]\n"),
                 "x:1:13: error: listeners: a map of keys is expected, not a single value"));
  CHECK(contains(told("listeners: []\n"), "x:1:12: error: listeners: the list is empty"));
  CHECK(contains(told("backends: [a]\n"),
                 "x:1:11: error: backends: a map from names to backends is expected, not a list"));
  CHECK(contains(told("log: info\n"), "x:1:6: error: log: a map of keys is expected"));
  CHECK(contains(told("user: [a]\n"), "x:1:7: error: user: a text is expected, not a list"));
  CHECK(contains(told("drain: {s: 5}\n"), "x:1:8: error: drain: a duration is expected, not a map"));
  CHECK(contains(told("resolver: {ipv4: True}\n"), "'True' is neither true nor false"));
  CHECK(contains(told("resolver: {ipv4: \"true\"}\n"), "write true without quotes"));
  CHECK(contains(told("user: \"a\\nb\"\n"), "control characters"));
  CHECK(contains(told("workers: 1\n"), "x:1:1: error: the configuration lacks the key 'listeners'"));
}

TEST_CASE("a word that is not known is told with the nearest one", "[loader]") {
  CHECK(contains(told("log: {level: wran}\n"), "did you mean 'warn'?"));
  CHECK(contains(told("log: {level: verbose}\n"), "it is one of debug, info, warn, error, off"));
  CHECK(contains(told(routed("to: web, tls: {certificates: {self_signed: true}, min_version: TLS1.2}")),
                 "did you mean 'TLSv1.2'?"));
  CHECK(load("log: {level: off}\n").config.log.level == LogLevel::off);
}

TEST_CASE("a resolver has something to ask for", "[loader]") {
  CHECK(contains(told("resolver: {ipv4: false, ipv6: off}\n"),
                 "x:1:18: error: resolver: with ipv4 and ipv6 both off"));
  CHECK(contains(told("resolver: {servers: dns.example}\n"), "x:1:21: error: servers: "));
  CHECK(contains(told("log: {access: {format: json}}\n"),
                 "x:1:15: error: the access log lacks the key 'path'"));
}

// --- listeners -------------------------------------------------------------------------------------

TEST_CASE("a listener needs a name, an address and a route", "[loader]") {
  const std::string all = told("listeners:\n  - {half_close: true}\nbackends: {}\n");
  CHECK(contains(all, "x:2:5: error: a listener lacks the key 'name'"));
  CHECK(contains(all, "x:2:5: error: a listener lacks the key 'bind'"));
  CHECK(contains(all, "x:2:5: error: a listener needs 'to' or 'routes'"));
  CHECK(contains(told(routed("to: web, routes: [{to: other}]")),
                 "x:2:27: error: a listener has either 'to' or 'routes', not both"));
  CHECK(contains(told(routed("routes: []")), "routes: the list is empty"));
  CHECK(contains(told(listener("bind: [], to: web")), "bind: the list is empty"));
}

TEST_CASE("two listeners have two names", "[loader]") {
  const std::string text =
      "listeners:\n  - {name: a, bind: \":1\", to: b}\n  - {name: a, bind: \":2\", to: b}\nbackends: {b: "
      "\"a:1\"}\n";
  CHECK(told(text) == "x:3:12: error: listeners: the name 'a' is taken; first at line 2, column 12\n");
  CHECK(contains(told("listeners: [{name: \"a b\"}]\n"), "'a b' is no name"));
}

TEST_CASE("two sockets have two addresses", "[loader]") {
  const auto two = [](std::string_view a, std::string_view b) {
    return told("listeners:\n  - {name: a, bind: " + std::string(a) +
                ", to: b}\n  - {name: c, bind: " + std::string(b) + ", to: b}\nbackends: {b: \"a:1\"}\n");
  };
  CHECK(two("\":80\"", "\"0.0.0.0:80\"") ==
        "x:3:21: error: '0.0.0.0:80' is taken by listener 'a' at line 2, column 21\n");
  CHECK(two("\"127.0.0.1:8000-8010\"", "\"127.0.0.1:8005-8020\"") ==
        "x:3:21: error: '127.0.0.1:8005' is taken by listener 'a' at line 2, column 21\n");
  CHECK(contains(two("unix:/x", "unix:/x"), "'unix:/x' is taken"));
  CHECK(contains(two("systemd:x", "systemd:x"), "'systemd:x' is taken"));
  CHECK(contains(two("[\":1\", \":1\"]", "\":2\""),
                 "x:2:28: error: '0.0.0.0:1' is taken by listener 'a' at line 2, column 22"));
  CHECK(two("\"127.0.0.1:0\"", "\"127.0.0.1:0\"").empty());
  CHECK(two("\"127.0.0.1:80\"", "\"127.0.0.2:80\"").empty());
  CHECK(two("\":80\"", "\"127.0.0.1:80\"").empty());
}

TEST_CASE("an IPv6 wildcard that takes IPv4 clients has the IPv4 wildcard's address as well", "[loader]") {
  const auto two = [](std::string_view a, std::string_view b) {
    return told("listeners:\n  - {name: a, bind: " + std::string(a) +
                ", to: b}\n  - {name: c, bind: " + std::string(b) + ", to: b}\nbackends: {b: \"a:1\"}\n");
  };
  const std::string both = "{address: \"[::]:80\", v6only: false}";
  CHECK(contains(two(both, "\":80\""),
                 "x:3:21: error: '0.0.0.0:80' is taken by listener 'a' at line 2, column 31"));
  CHECK(contains(two("\":80\"", both), "x:3:31: error: '[::]:80 without v6only' is taken by listener 'a'"));
  CHECK(two("\"[::]:80\"", "\":80\"").empty());
  CHECK(two(both, "\":81\"").empty());
}

TEST_CASE("options of a bind address are refused where they do nothing", "[loader]") {
  CHECK(contains(told(listener("bind: {address: \":1\", v6only: true}, to: web")),
                 "v6only is for IPv6 addresses"));
  CHECK(contains(told(listener("bind: {address: \"systemd:x\", backlog: 5}, to: web")), "Backlog="));
  CHECK(contains(told(listener("bind: {backlog: 5}, to: web")), "a bind address lacks the key 'address'"));
  CHECK(contains(told(listener("bind: {address: \":1\", backlog: 0}, to: web")), "not between 1 and 65535"));
  CHECK(contains(told(listener("bind: {address: \":1\", backlog: 65536}, to: web")),
                 "not between 1 and 65535"));
}

TEST_CASE("the addresses of a configuration are bounded", "[loader]") {
  std::string ranges;
  for (int i = 1; i <= 20; ++i) ranges += "\"127.0.0." + std::to_string(i) + ":1-1000\", ";
  CHECK(contains(told(listener("bind: [" + ranges + "], to: web")),
                 "more than 10000 addresses to listen on by here"));
}

TEST_CASE("a preread buffer has room for a ClientHello and a bound", "[loader]") {
  CHECK(contains(told(routed("preread_buffer: 512k, to: web")), "not between 1k and 64k"));
  CHECK(load(routed("preread_buffer: 1k, to: web")).config.listeners.at(0).preread_buffer == 1024);
}

// --- routes ----------------------------------------------------------------------------------------

TEST_CASE("a route leads to a backend that exists", "[loader]") {
  CHECK(told(routed("to: wbe")) == "x:2:31: error: there is no backend 'wbe'; did you mean 'web'?\n");
  CHECK(told(routed("to: nothing-like-it")) == "x:2:31: error: there is no backend 'nothing-like-it'\n");
  CHECK(contains(told(routed("routes: [{source: 10.0.0.0/8}]")), "a route lacks the key 'to'"));
  CHECK(contains(told("listeners: [{name: l, bind: \":1\", to: b}]\n"), "there is no backend 'b'"));
}

TEST_CASE("a backend to which nothing leads is a warning", "[loader]") {
  CHECK(told(routed("to: web")) == "x:3:24: warning: no route leads to the backend 'other'\n");
  CHECK_FALSE(load(routed("to: web")).diagnostics.failed());
}

TEST_CASE("a route behind a default route is a warning", "[loader]") {
  const std::string all = told(routed("routes: [{to: web}, {source: 10.0.0.0/8, to: other}]"));
  CHECK(all ==
        "x:2:47: warning: this route can never match: the one at line 2, column 36 takes every connection\n");
  CHECK(told(routed("routes: [{source: 10.0.0.0/8, to: other}, {to: web}]")).empty());
}

TEST_CASE("routes test the ClientHello only where there can be one", "[loader]") {
  for (const char* test : {"sni: a.example", "alpn: h2", "tls: true"}) {
    INFO(test);
    const std::string routes = "routes: [{" + std::string(test) + ", to: web}, {to: other}]";
    CHECK(contains(told(routed(routes)), "x:2:37: error: a listener without tls cannot route by"));
    CHECK(told(routed("tls: passthrough, " + routes)).empty());
    CHECK(told(routed("tls: {certificates: {self_signed: true}}, " + routes)).empty());
  }
  CHECK(contains(
      told(routed("tls: {certificates: {self_signed: true}}, routes: [{tls: false, to: web}, {to: other}]")),
      "warning: this route can never match: the listener takes nothing but TLS"));
}

TEST_CASE("an empty list of tests does not make a default route", "[loader]") {
  CHECK(contains(told(routed("tls: passthrough, routes: [{sni: [], to: web}]")), "sni: the list is empty"));
  CHECK(contains(told(routed("routes: [{source: [], to: web}]")), "source: the list is empty"));
  CHECK(contains(told(routed("tls: passthrough, routes: [{alpn: [], to: web}]")), "alpn: the list is empty"));
}

TEST_CASE("what a route tests is checked where it stands", "[loader]") {
  const auto route = [](std::string_view tests) {
    return told(routed("tls: passthrough, routes: [{" + std::string(tests) + ", to: web}, {to: other}]"));
  };
  CHECK(contains(route("sni: [ok.example, \"a.*.example\"]"), "x:2:73: error: sni: "));
  CHECK(contains(route("alpn: [\"" + std::string(256, 'a') + "\"]"), "1 to 255 bytes"));
  CHECK(contains(route("alpn: ''"), "not an empty text"));
  CHECK(contains(route("source: 192.0.2.1/24"), "bits beyond its prefix"));
  CHECK(contains(route("source: 192.0.2.0/033"), "no valid prefix length"));
}

// --- TLS -------------------------------------------------------------------------------------------

TEST_CASE("tls is passthrough or a map", "[loader]") {
  CHECK(load(routed("tls: passthrough, to: web")).config.listeners.at(0).tls_mode == TlsMode::passthrough);
  CHECK(contains(told(routed("tls: true, to: web")), "'true' is neither 'passthrough' nor a map"));
  CHECK(contains(told(routed("tls: , to: web")),
                 "tls: 'passthrough' or a map of keys is expected, not nothing"));
}

TEST_CASE("a listener that terminates TLS has a certificate", "[loader]") {
  const auto tls = [](std::string_view keys) {
    return told(routed("to: web, tls: {" + std::string(keys) + "}"));
  };
  CHECK(contains(tls("min_version: TLSv1.3"),
                 "x:2:41: error: tls: a listener that terminates TLS needs 'certificates'"));
  CHECK(contains(tls("certificates: []"), "certificates: the list is empty"));
  CHECK(contains(tls("certificates: [{key: k.pem}]"), "a certificate needs 'chain' or 'self_signed: true'"));
  CHECK(contains(tls("certificates: [{self_signed: false}]"),
                 "a certificate needs 'chain' or 'self_signed: true'"));
  CHECK(contains(tls("certificates: [{self_signed: true, key: k.pem}]"), "takes no 'key'"));
}

TEST_CASE("versions leave something to agree on", "[loader]") {
  const auto tls = [](std::string_view keys) {
    return told(routed("to: web, tls: {certificates: {self_signed: true}, " + std::string(keys) + "}"));
  };
  CHECK(contains(tls("min_version: TLSv1.3, max_version: TLSv1.2"), "min_version is later than max_version"));
  CHECK(contains(tls("max_version: TLSv1.1"), "min_version is later than max_version"));
  CHECK(contains(tls("hosts: [{sni: a.b, max_version: TLSv1.1}]"), "x:2:109: error: min_version is later"));
  CHECK_FALSE(contains(tls("min_version: TLSv1.2, max_version: TLSv1.2"), "error"));
}

TEST_CASE("client certificates are verified by something, and nothing is given in vain", "[loader]") {
  const auto auth = [](std::string_view keys) {
    return told(routed("to: web, tls: {certificates: {self_signed: true}, client_auth: {" +
                       std::string(keys) + "}}"));
  };
  CHECK(contains(auth("mode: required"), "error: client_auth: without 'ca'"));
  CHECK(contains(auth("mode: optional"), "error: client_auth: without 'ca'"));
  CHECK(contains(auth("crl: r.pem"), "error: client_auth: 'crl' needs 'ca'"));
  CHECK(
      contains(auth("mode: none, ca: c.pem"), "warning: client_auth: 'ca' has no effect while mode is none"));
  CHECK(contains(auth("ca: c.pem"), "warning: client_auth: 'ca' has no effect while mode is none"));
  CHECK_FALSE(contains(auth("mode: required, ca: c.pem, crl: [a.pem, b.pem], depth: 0"), "error"));
  CHECK(contains(auth("mode: required, ca: c.pem, depth: 101"), "not between 0 and 100"));
}

TEST_CASE("ALPN names are given once and fit a handshake message", "[loader]") {
  const auto alpn = [](const std::string& list) {
    return told(routed("to: web, tls: {certificates: {self_signed: true}, alpn: " + list + "}"));
  };
  CHECK(contains(alpn("[h2, h2]"), "alpn: 'h2' is given twice"));
  std::string many;
  for (int i = 100; i < 400; ++i) many += std::to_string(i) + std::string(250, 'a') + ", ";
  CHECK(contains(alpn("[" + many + "]"), "longer than the 65535 bytes"));
}

TEST_CASE("a host's policy is the listener's but for what it says itself", "[loader]") {
  const Config config = sound(R"(
listeners:
  - name: l
    bind: ":1"
    to: b
    tls:
      hosts:
        - {sni: a.example, client_auth: {ca: a.pem, crl: []}, alpn: []}
        - {sni: ["*.B.example", b.example.], certificates: {chain: b.pem}, min_version: TLSv1.3, ciphers: X}
      certificates: {chain: l.pem}
      ciphers: L
      groups: P-256
      alpn: [h2]
      client_auth: {mode: required, ca: l-ca.pem, depth: 5, crl: l-crl.pem}
backends: {b: "a:1"}
)");
  const ServerTls& tls = config.listeners.at(0).tls;
  REQUIRE(tls.hosts.size() == 2);
  const TlsPolicy& a = tls.hosts[0].policy;
  CHECK(a.certificates.at(0).chain.value == "l.pem");
  CHECK(a.client_auth.mode == ClientAuthMode::required);
  CHECK(a.client_auth.ca.value == "a.pem");
  CHECK(a.client_auth.depth == 5);
  CHECK(a.client_auth.crl.empty());
  CHECK(a.alpn.empty());
  CHECK(a.ciphers.value == "L");
  const TlsPolicy& b = tls.hosts[1].policy;
  CHECK(tls.hosts[1].sni.at(0).value == "*.b.example");
  CHECK(tls.hosts[1].sni.at(1).value == "b.example");
  CHECK(b.certificates.at(0).chain.value == "b.pem");
  CHECK(b.min_version == TlsVersion::tls1_3);
  CHECK(b.ciphers.value == "X");
  CHECK(b.groups.value == "P-256");
  CHECK(b.alpn.at(0).value == "h2");
  CHECK(b.client_auth.ca.value == "l-ca.pem");
  CHECK(tls.policy.alpn.size() == 1);
  CHECK(tls.policy.client_auth.ca.value == "l-ca.pem");
}

TEST_CASE("a host's name is given once", "[loader]") {
  const auto hosts = [](std::string_view list) {
    return told(
        "listeners:\n  - name: l\n    bind: \":1\"\n    to: b\n    tls:\n      certificates: {self_signed: "
        "true}\n"
        "      hosts: " +
        std::string(list) + "\nbackends: {b: \"a:1\"}\n");
  };
  CHECK(hosts("[{sni: a.b}, {sni: [c.d, A.B.]}]") ==
        "x:7:39: error: hosts: 'a.b' is given twice; first at line 7, column 21\n");
  CHECK(contains(hosts("[{sni: [a.b, a.b]}]"), "given twice"));
  CHECK(hosts("[{sni: a.b}, {sni: \"*.b\"}]").empty());
  CHECK(contains(hosts("[{alpn: h2}]"), "an entry of hosts lacks the key 'sni'"));
  CHECK(contains(hosts("[]"), "the list is empty"));
  CHECK(contains(hosts("[{sni: a.b, hosts: []}]"), "unknown key 'hosts'"));
}

TEST_CASE("what hosts inherit is bounded", "[loader]") {
  std::string text = "listeners:\n  - name: l\n    bind: \":1\"\n    to: b\n    tls:\n      certificates: [";
  for (int i = 0; i < 1000; ++i) text += "{chain: x},";
  text += "]\n      hosts: [";
  for (int i = 0; i < 1000; ++i) text += "{sni: h" + std::to_string(i) + "},";
  CHECK(contains(told(text + "]\nbackends: {b: \"a:1\"}\n"), "more than 200000 inherited values by here"));
}

// --- backends --------------------------------------------------------------------------------------

TEST_CASE("a backend may be its servers alone", "[loader]") {
  CHECK(sound(backend("\"a:1\"")).backends.at(0).servers.size() == 1);
  CHECK(sound(backend("[\"a:1\", {address: \"b:1\", weight: 2}]")).backends.at(0).servers.size() == 2);
  CHECK(sound(backend("{servers: \"a:1\"}")).backends.at(0).servers.size() == 1);
  CHECK(sound(backend("{servers: {address: \"a:1\"}}")).backends.at(0).servers.size() == 1);
}

TEST_CASE("a backend is exactly one thing", "[loader]") {
  CHECK(contains(told(backend("{}")), "x:3:6: error: a backend has exactly one of"));
  CHECK(contains(told(backend("{echo: true, respond: x}")), "a backend has exactly one of"));
  CHECK(contains(told(backend("{servers: \"a:1\", echo: true}")), "a backend has exactly one of"));
  CHECK(contains(told(backend("{echo: false}")), "can only be true"));
  CHECK(contains(told(backend("{respond: ''}")), "not an empty text"));
  CHECK(contains(told(backend("{respond: x, tls: true}")),
                 "x:3:19: error: 'tls' is for backends with servers"));
  CHECK(contains(told(backend("{echo: true, tries: 1}")), "'tries' is for backends with servers"));
  CHECK(contains(told(backend("")), "x:3:3: error: b: "));
}

TEST_CASE("a backend has a server to use", "[loader]") {
  CHECK(contains(told(backend("{servers: []}")), "servers: the list is empty"));
  CHECK(contains(told(backend("[]")), "b: the list is empty"));
  CHECK(contains(told(backend("{servers: [{address: \"a:1\", down: true}]}")),
                 "every server of this backend is down"));
  CHECK(contains(told(backend("{servers: [{address: \"a:1\", backup: true}]}")), "neither backup nor down"));
  CHECK(contains(told(backend("[{address: \"a:1\", backup: true}, {address: \"b:1\", down: true}]")),
                 "neither backup nor down"));
  CHECK(told(backend("[{address: \"a:1\", backup: true}, \"b:1\"]")).empty());
}

TEST_CASE("a server's numbers have their ranges", "[loader]") {
  CHECK(contains(told(backend("[{address: \"a:1\", weight: 0}]")), "not between 1 and 65535"));
  CHECK(contains(told(backend("[{address: \"a:1\", weight: 65536}]")), "not between 1 and 65535"));
  CHECK(contains(told(backend("[\"a:0\"]")), "not between 1 and 65535"));
  CHECK(contains(told(backend("[{weight: 1}]")), "a server lacks the key 'address'"));
  CHECK(contains(told(backend("{servers: \"a:1\", tries: 1001}")), "not between 0 and 1000"));
}

TEST_CASE("tls of a backend is true or a map, and says whom to verify", "[loader]") {
  CHECK(sound(backend("{servers: \"a:1\", tls: true}")).backends.at(0).tls.value().verify);
  CHECK_FALSE(sound(backend("{servers: \"a:1\", tls: false}")).backends.at(0).tls.has_value());
  CHECK(contains(told(backend("{servers: \"unix:/x\", tls: true}")), "needs a server_name to verify"));
  CHECK(told(backend("{servers: \"unix:/x\", tls: {server_name: a.b}}")).empty());
  CHECK(told(backend("{servers: \"unix:/x\", tls: {verify: false}}")).empty());
  CHECK(contains(told(backend("{servers: \"a:1\", tls: {verify: false, ca: c.pem}}")),
                 "warning: tls: 'ca' has no effect"));
  CHECK(contains(told(backend("{servers: \"a:1\", tls: {server_name: \"*.b\"}}")), "not a pattern"));
  CHECK(contains(told(backend("{servers: \"a:1\", tls: {certificate: {key: k}}}")),
                 "a client certificate lacks the key 'chain'"));
  CHECK(contains(told(backend("{servers: \"a:1\", tls: {certificate: {self_signed: true}}}")),
                 "unknown key 'self_signed'"));
  CHECK(contains(told(backend("{servers: \"a:1\", tls: {min_version: TLSv1.3, max_version: TLSv1.2}}")),
                 "is later than"));
}

TEST_CASE("a backend's name is a name", "[loader]") {
  CHECK(contains(told("backends:\n  \"a b\": \"h:1\"\n"), "x:2:3: error: backends: 'a b' is no name"));
}

TEST_CASE("text of the file is shown escaped and cut", "[loader]") {
  const auto lines = load("\"a\\nb\\e[31m" + std::string(900, 'k') + "\": 1\nlisteners: []\n").lines;
  for (const std::string& line : lines) {
    CHECK(line.size() < 400);
    CHECK(line.find('\n') == std::string::npos);
    CHECK(line.find('\x1b') == std::string::npos);
  }
  CHECK(says(lines, "x:1:1: error: ", "a\\x0ab\\x1b[31m"));
}

TEST_CASE("after a hundred errors the rest is counted", "[loader]") {
  std::string text;
  for (int i = 0; i < 250; ++i) text += "key" + std::to_string(i) + ": 1\n";
  const auto loaded = load(text);
  CHECK(loaded.lines.size() == Diagnostics::kLimit + 1);
  CHECK(loaded.diagnostics.errors() == 251);
  CHECK(contains(loaded.lines.back(), "151 more"));
}
