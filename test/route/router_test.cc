#include "route/router.h"

#include <algorithm>
#include <random>

#include "support/catch.h"

namespace tlsproxy::route {
namespace {

config::Route route_to(std::string to) {
  config::Route route;
  route.to.value = std::move(to);
  return route;
}

config::Route with_sni(config::Route route, const std::vector<std::string>& names) {
  for (const std::string& name : names) route.sni.push_back({name, {}});
  return route;
}

config::Route with_alpn(config::Route route, const std::vector<std::string>& protocols) {
  for (const std::string& protocol : protocols) route.alpn.push_back({protocol, {}});
  return route;
}

config::Route with_source(config::Route route, const std::vector<std::string>& networks) {
  for (const std::string& network : networks) route.source.push_back(os::Network::parse(network).value());
  return route;
}

config::Route with_tls(config::Route route, bool tls) {
  route.tls = tls;
  return route;
}

Facts named(std::string_view sni) {
  Facts facts;
  facts.source = os::SocketAddress::parse("192.0.2.1:1000").value();
  facts.sni = sni;
  facts.tls = true;
  return facts;
}

std::string chosen(const std::vector<config::Route>& routes, const Facts& facts) {
  const config::Route* route = Router(routes).match(facts);
  return route == nullptr ? "none" : route->to.value;
}

// What the router promises, in its plainest form.
const config::Route* linear_match(const std::vector<config::Route>& routes, const Facts& facts) {
  for (const config::Route& route : routes) {
    const bool sni = route.sni.empty() ||
                     std::any_of(route.sni.begin(), route.sni.end(),
                                 [&](const auto& pattern) { return name_matches(pattern.value, facts.sni); });
    const bool alpn =
        route.alpn.empty() || std::any_of(route.alpn.begin(), route.alpn.end(), [&](const auto& protocol) {
          return std::count(facts.alpn.begin(), facts.alpn.end(), protocol.value) > 0;
        });
    const bool source = route.source.empty() ||
                        std::any_of(route.source.begin(), route.source.end(),
                                    [&](const auto& network) { return network.contains(facts.source); });
    if (sni && alpn && source && (!route.tls || *route.tls == facts.tls)) return &route;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a wildcard covers exactly one label", "[router]") {
  CHECK(name_matches("*.example.com", "www.example.com"));
  CHECK_FALSE(name_matches("*.example.com", "example.com"));
  CHECK_FALSE(name_matches("*.example.com", "a.b.example.com"));
  CHECK_FALSE(name_matches("*.example.com", ".example.com"));
  CHECK_FALSE(name_matches("*.example.com", "wwwexample.com"));
  CHECK(name_matches("example.com", "example.com"));
  CHECK_FALSE(name_matches("example.com", "www.example.com"));
  CHECK_FALSE(name_matches("example.com", ""));
  CHECK_FALSE(name_matches("*.example.com", ""));
}

TEST_CASE("the first route whose tests hold wins, exact or wildcard, in the order of the file", "[router]") {
  const std::vector<config::Route> routes{with_sni(route_to("pay"), {"pay.example.com"}),
                                          with_sni(route_to("wild"), {"*.example.com", "example.com"}),
                                          with_sni(route_to("late"), {"www.example.com"}),
                                          route_to("default"),
                                          with_sni(route_to("never"), {"other.example.org"})};
  CHECK(chosen(routes, named("pay.example.com")) == "pay");
  CHECK(chosen(routes, named("www.example.com")) == "wild");
  CHECK(chosen(routes, named("example.com")) == "wild");
  CHECK(chosen(routes, named("a.b.example.com")) == "default");
  CHECK(chosen(routes, named("other.example.org")) == "default");
  CHECK(chosen(routes, named("")) == "default");
}

TEST_CASE("without a default, what matches nothing gets no route", "[router]") {
  const std::vector<config::Route> routes{with_sni(route_to("web"), {"example.com"})};
  CHECK(chosen(routes, named("example.org")) == "none");
  CHECK(chosen(routes, named("")) == "none");
  CHECK(chosen({}, named("example.com")) == "none");
}

TEST_CASE("every test of a route must hold", "[router]") {
  const std::vector<config::Route> routes{
      with_source(with_alpn(with_sni(route_to("all"), {"example.com"}), {"h2"}), {"192.0.2.0/24"})};
  Facts facts = named("example.com");
  const std::vector<std::string> offered{"http/1.1", "h2"};
  facts.alpn = offered;
  CHECK(chosen(routes, facts) == "all");
  facts.alpn = std::span(offered).first(1);
  CHECK(chosen(routes, facts) == "none");
  facts.alpn = std::span(offered).last(1);
  facts.source = os::SocketAddress::parse("198.51.100.1:1").value();
  CHECK(chosen(routes, facts) == "none");
}

TEST_CASE("a source test sees IPv4 behind its IPv6 form, and no unix client", "[router]") {
  const std::vector<config::Route> routes{with_source(route_to("v4"), {"192.0.2.0/24", "198.51.100.7"}),
                                          with_source(route_to("v6"), {"2001:db8::/32"}),
                                          with_source(route_to("any"), {"0.0.0.0/0", "::/0"})};
  const auto from = [&](const char* source) {
    Facts facts;
    facts.source = os::SocketAddress::parse(source).value();
    return chosen(routes, facts);
  };
  CHECK(from("192.0.2.200:5") == "v4");
  CHECK(from("[::ffff:192.0.2.200]:5") == "v4");
  CHECK(from("198.51.100.7:5") == "v4");
  CHECK(from("198.51.100.8:5") == "any");
  CHECK(from("[2001:db8::1]:5") == "v6");
  CHECK(from("unix:/run/client") == "none");
}

TEST_CASE("a tls test tells what began with a ClientHello from what did not", "[router]") {
  const std::vector<config::Route> routes{with_tls(route_to("tls"), true),
                                          with_tls(route_to("plain"), false)};
  Facts facts = named("");
  CHECK(chosen(routes, facts) == "tls");
  facts.tls = false;
  CHECK(chosen(routes, facts) == "plain");
}

TEST_CASE("only tests of sni, alpn and tls need the ClientHello", "[router]") {
  const auto needs = [](std::vector<config::Route> routes) { return Router(routes).needs_hello(); };
  CHECK_FALSE(needs({}));
  CHECK_FALSE(needs({with_source(route_to("a"), {"192.0.2.0/24"}), route_to("b")}));
  CHECK(needs({route_to("a"), with_sni(route_to("b"), {"example.com"})}));
  CHECK(needs({with_alpn(route_to("a"), {"h2"})}));
  CHECK(needs({with_tls(route_to("a"), false)}));
}

TEST_CASE("the index gives what a linear scan gives", "[router][model]") {
  const std::vector<std::string> patterns{"a.x",   "b.x",     "c.y", "a.b.x", "x",  "*.x",
                                          "*.b.x", "*.a.b.x", "*.y", "*.z",   "y.x"};
  const std::vector<std::string> names{"",    "x",     "a.x",   "b.x",     "c.x",     "c.y",
                                       "y.x", "a.b.x", "c.b.x", "q.a.b.x", "q.r.s.x", ".x"};
  const std::vector<std::string> protocols{"h2", "http/1.1", "mqtt"};
  const std::vector<std::string> networks{"192.0.2.0/24", "192.0.2.128/25", "2001:db8::/32"};
  const std::vector<std::string> sources{"192.0.2.1:1", "192.0.2.200:1", "[2001:db8::5]:1", "unix:/c"};
  std::size_t matched = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto one_of = [&](const auto& choices) -> const auto& {
      return choices[random() % choices.size()];
    };
    std::vector<config::Route> routes(random() % 40);
    for (config::Route& route : routes) {
      for (auto n = random() % 4; n > 0; --n) route = with_sni(route, {one_of(patterns)});
      if (random() % 4 == 0) route = with_alpn(route, {one_of(protocols)});
      if (random() % 4 == 0) route = with_source(route, {one_of(networks)});
      if (random() % 4 == 0) route.tls = random() % 2 == 0;
    }
    const Router router(routes);
    for (int trial = 0; trial < 200; ++trial) {
      Facts facts = named(one_of(names));
      facts.source = os::SocketAddress::parse(one_of(sources)).value();
      facts.tls = random() % 4 != 0;
      if (random() % 2 == 0) facts.alpn = std::span(&one_of(protocols), 1);
      const config::Route* expected = linear_match(routes, facts);
      REQUIRE(router.match(facts) == expected);
      matched += expected != nullptr ? 1 : 0;
    }
  }
  CHECK(matched > 1000);
}

}  // namespace tlsproxy::route
