#include "config/notation.h"

#include <string>

#include "config/loading.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::config;

namespace {

std::string bound(const std::string& text) {
  const auto binds = parse_bind(text);
  if (!binds) return "error: " + binds.error().message;
  std::string all;
  for (const Bind& bind : *binds) all += (all.empty() ? "" : " ") + bind_text(bind);
  return all;
}

std::string served(const std::string& text) {
  const auto server = parse_server(text);
  if (!server) return "error: " + server.error().message;
  if (const auto* address = std::get_if<os::SocketAddress>(&*server)) return address->to_string();
  const auto& name = std::get<HostPort>(*server);
  return "name " + name.host + " " + std::to_string(name.port);
}

}  // namespace

TEST_CASE("a port alone listens on every IPv4 address", "[notation]") {
  CHECK(bound("443") == "0.0.0.0:443");
  CHECK(bound(":443") == "0.0.0.0:443");
  CHECK(bound("*:443") == "0.0.0.0:443");
}

TEST_CASE("bind addresses have one meaning", "[notation]") {
  CHECK(bound("127.0.0.1:443") == "127.0.0.1:443");
  CHECK(bound("127.0.0.1:0") == "127.0.0.1:0");
  CHECK(bound("[::]:443") == "[::]:443");
  CHECK(bound("[2001:db8::1]:443") == "[2001:db8::1]:443");
  CHECK(bound("unix:/run/x.sock") == "unix:/run/x.sock");
  CHECK(bound("unix:@x") == "unix:@x");
  CHECK(bound("systemd:web") == "systemd:web");
  REQUIRE(parse_bind("systemd:web"));
  CHECK(parse_bind("systemd:web")->front().address.family() == AF_UNSPEC);
}

TEST_CASE("a port range is one address for each port", "[notation]") {
  CHECK(bound("127.0.0.1:8000-8002") == "127.0.0.1:8000 127.0.0.1:8001 127.0.0.1:8002");
  CHECK(bound(":8000-8000") == "0.0.0.0:8000");
  CHECK(bound("8000-8001") == "0.0.0.0:8000 0.0.0.0:8001");
  CHECK(bound("[::1]:65534-65535") == "[::1]:65534 [::1]:65535");
  CHECK(parse_bind("127.0.0.1:1-1024")->size() == kMostPorts);
}

TEST_CASE("a bind address that could be read in two ways is refused", "[notation]") {
  CHECK(contains(bound("::"), "\"[::]:PORT\""));
  CHECK(contains(bound("::443"), "\"[::]:PORT\""));
  CHECK(contains(bound("2001:db8::1:443"), "in brackets"));
  CHECK(contains(bound("[::]"), "no port"));
  CHECK(contains(bound("[::ffff:127.0.0.1]:80"), "write the IPv4 address"));
  CHECK(contains(bound("22:22"), "not a numeric address"));
  CHECK(contains(bound("1:30"), "not a numeric address"));
  CHECK(contains(bound("localhost:80"), "not a numeric address"));
  CHECK(contains(bound("[127.0.0.1]:80"), "not a numeric address"));
  CHECK(contains(bound("[*]:80"), "not a numeric address"));
  CHECK(contains(bound("127.0.0.1"), "no port"));
  CHECK(contains(bound("0443"), "leading zero"));
  CHECK(contains(bound(":08"), "leading zero"));
  CHECK(contains(bound("65536"), "between 0 and 65535"));
  CHECK(contains(bound("99999999999999999999"), "between 0 and 65535"));
  CHECK(contains(bound(":-1"), "negative"));
  CHECK(contains(bound("127.0.0.1:8010-8000"), "backwards"));
  CHECK(contains(bound("127.0.0.1:1-1025"), "more than 1024 ports"));
  CHECK(contains(bound("127.0.0.1:0-5"), "between 1 and 65535"));
  CHECK(contains(bound("127.0.0.1:1-2-3"), "not a whole number"));
  CHECK(contains(bound("unix:run/x.sock"), "no absolute path"));
  CHECK(contains(bound("unix:"), "names no path"));
  CHECK(contains(bound("unix:/" + std::string(200, 'x')), "longer than"));
  CHECK(contains(bound("systemd:"), "names no socket"));
  CHECK(contains(bound("systemd:a:b"), "names no socket"));
  CHECK(bound("").starts_with("error: "));
  CHECK(bound(":").starts_with("error: "));
}

TEST_CASE("a server is a numeric address, a unix socket or a host name, with a port", "[notation]") {
  CHECK(served("10.0.0.5:8080") == "10.0.0.5:8080");
  CHECK(served("[2001:db8::1]:80") == "[2001:db8::1]:80");
  CHECK(served("unix:/run/app.sock") == "unix:/run/app.sock");
  CHECK(served("app.internal:80") == "name app.internal 80");
  CHECK(served("App.Internal.:80") == "name app.internal 80");
  CHECK(served("localhost:1") == "name localhost 1");
  CHECK(served("db_1:5432") == "name db_1 5432");
  CHECK(served("1.2.3.4.example:80") == "name 1.2.3.4.example 80");
}

TEST_CASE("a server that could never be reached is refused", "[notation]") {
  CHECK(contains(served("10.0.0.5"), "no port"));
  CHECK(contains(served("443"), "no port"));
  CHECK(contains(served("10.0.0.5:0"), "between 1 and 65535"));
  CHECK(contains(served("10.0.0.5:080"), "leading zero"));
  CHECK(contains(served("10.0.0.5:80-90"), "not a whole number"));
  CHECK(contains(served("10.0.0.256:80"), "neither a host name nor an IPv4 address"));
  CHECK(contains(served("22:22"), "neither a host name nor an IPv4 address"));
  CHECK(contains(served("::1:80"), "in brackets"));
  CHECK(contains(served("[app]:80"), "no IPv6 address"));
  CHECK(contains(served("a b:80"), "no host name has"));
  CHECK(contains(served("a..b:80"), "empty label"));
  CHECK(contains(served(":80"), "empty label"));
  CHECK(contains(served("*.b:80"), "'*'"));
  CHECK(contains(served("b\xc3\xbc.example:80"), "xn--"));
  CHECK(contains(served(std::string(64, 'a') + ":80"), "more than 63"));
  std::string longest;
  for (int i = 0; i < 64; ++i) longest += "abc.";
  CHECK(contains(served(longest + "x:80"), "longer than 253"));
  CHECK(contains(served("unix:app.sock"), "no absolute path"));
}

TEST_CASE("a name server is a numeric address with port 53 unless it says another", "[notation]") {
  CHECK(parse_name_server("192.0.2.1")->to_string() == "192.0.2.1:53");
  CHECK(parse_name_server("127.0.0.1:5353")->to_string() == "127.0.0.1:5353");
  CHECK(parse_name_server("2001:db8::1")->to_string() == "[2001:db8::1]:53");
  CHECK(parse_name_server("[2001:db8::1]")->to_string() == "[2001:db8::1]:53");
  CHECK(parse_name_server("[2001:db8::1]:54")->to_string() == "[2001:db8::1]:54");
  for (const char* text : {"dns.example", "192.0.2.1:0", "192.0.2.1:", "unix:/x", "[192.0.2.1]", "", "[]"}) {
    INFO(text);
    CHECK_FALSE(parse_name_server(text));
  }
}

TEST_CASE("a name pattern is lower case without the dot at its end", "[notation]") {
  CHECK(parse_name_pattern("WWW.Example.com").value() == "www.example.com");
  CHECK(parse_name_pattern("example.com.").value() == "example.com");
  CHECK(parse_name_pattern("*.Example.com.").value() == "*.example.com");
  CHECK(parse_name_pattern("xn--bcher-kva.example").value() == "xn--bcher-kva.example");
  CHECK(parse_name_pattern("_dmarc.example").value() == "_dmarc.example");
  CHECK(parse_name_pattern("localhost").value() == "localhost");
}

TEST_CASE("a star stands for the first label as a whole and for nothing else", "[notation]") {
  for (const char* text : {"*", "*.", "a.*.b", "a*.b", "*a.b", "**.b", "*.*.b", "a.*", ".example.com", "a..b",
                           "", ".", "a b", "a/b", "b\xc3\xbc.example"}) {
    INFO(text);
    CHECK_FALSE(parse_name_pattern(text));
  }
  CHECK(contains(parse_name_pattern("a.*.b").error().message, "'*'"));
  CHECK(contains(parse_name_pattern(".example.com").error().message, "\"*.example.com\""));
}

TEST_CASE("ALPN names have 1 to 255 bytes", "[notation]") {
  CHECK(check_alpn("h"));
  CHECK(check_alpn(std::string(255, 'a')));
  CHECK_FALSE(check_alpn(""));
  CHECK_FALSE(check_alpn(std::string(256, 'a')));
}

TEST_CASE("our own names have letters that need no quotes anywhere", "[notation]") {
  CHECK(check_name("web-1_a.B"));
  CHECK(check_name(std::string(64, 'a')));
  CHECK_FALSE(check_name(std::string(65, 'a')));
  for (const char* text : {"", "a b", "a/b", "a:b", "a\n", "\xc3\xbc"}) CHECK_FALSE(check_name(text));
}
