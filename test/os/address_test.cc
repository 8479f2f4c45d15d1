#include "os/address.h"

#include <cstring>
#include <memory>
#include <string>

#include "support/catch.h"
#include "support/heap.h"

using namespace tlsproxy;
using os::Network;
using os::SocketAddress;

namespace {

SocketAddress address(const std::string& text) {
  INFO(text);
  const auto parsed = SocketAddress::parse(text);
  REQUIRE(parsed);
  return *parsed;
}

SocketAddress ip(std::string_view text) {
  INFO(text);
  const auto parsed = SocketAddress::from_ip(text, 1);
  REQUIRE(parsed);
  return *parsed;
}

Network network(const std::string& text) {
  INFO(text);
  const auto parsed = Network::parse(text);
  REQUIRE(parsed);
  return *parsed;
}

}  // namespace

TEST_CASE("an address is read back from its own text", "[address]") {
  for (const char* text : {"192.0.2.1:443", "0.0.0.0:0", "255.255.255.255:65535", "[::]:443",
                           "[2001:db8::1]:1", "unix:/run/x.sock", "unix:@abstract"}) {
    CHECK(address(text).to_string() == text);
    CHECK(address(address(text).to_string()) == address(text));
  }
  CHECK(address("[2001:DB8:0:0:0:0:0:1]:1").to_string() == "[2001:db8::1]:1");
}

TEST_CASE("an IPv4-mapped address is written as the IPv4 address", "[address]") {
  CHECK(address("[::ffff:192.0.2.1]:80").to_string() == "192.0.2.1:80");
  CHECK(address("[::ffff:192.0.2.1]:80").host() == "192.0.2.1");
  CHECK(address("[::ffff:192.0.2.1]:80").family() == AF_INET6);
}

TEST_CASE("an address knows its parts", "[address]") {
  CHECK(address("[2001:db8::1]:8443").port() == 8443);
  CHECK(address("[2001:db8::1]:8443").host() == "2001:db8::1");
  CHECK(address("192.0.2.1:53").host() == "192.0.2.1");
  CHECK(address("unix:/run/x.sock").host() == "unix:/run/x.sock");
  CHECK(address("unix:/run/x.sock").port() == 0);
  CHECK(address("unix:/run/x.sock").is_unix());
  CHECK_FALSE(address("unix:/run/x.sock").ip_bytes().has_value());
  CHECK(SocketAddress().family() == AF_UNSPEC);
  CHECK(SocketAddress().to_string().empty());
  SocketAddress moved = address("192.0.2.1:0");
  moved.set_port(99);
  CHECK(moved.to_string() == "192.0.2.1:99");
}

TEST_CASE("what is no numeric address with a port is refused", "[address]") {
  const auto text =
      GENERATE(as<std::string>{}, "", ":", "192.0.2.1", "192.0.2.1:", "192.0.2.1:65536", "192.0.2.1:-1",
               "192.0.2.1:+1", "192.0.2.1: 1", "192.0.2.1:0443", "192.0.2.1:99999999999999999999",
               "192.0.2.1:0x50", "192.0.2.256:1", "192.0.2:1", "1:30", "22:22", "010.0.0.1:1",
               "::", "::1:443", "[::1]", "[::1]443", "[::1:443", "[192.0.2.1]:1", "[]:1", "localhost:1",
               "[fe80::1%lo]:1", " 192.0.2.1:1", "unix:", "unix:@");
  INFO(text);
  const auto parsed = SocketAddress::parse(text);
  REQUIRE_FALSE(parsed);
  CHECK_FALSE(parsed.error().message.empty());
}

TEST_CASE("a NUL byte does not hide what follows it", "[address]") {
  CHECK_FALSE(SocketAddress::from_ip(std::string_view("192.0.2.1\0.evil", 15), 1));
  CHECK_FALSE(Network::parse(std::string_view("192.0.2.1\0x", 11)));
  CHECK_FALSE(SocketAddress::parse(std::string_view("unix:/a\0b", 9)));
}

TEST_CASE("a unix path may fill its field but not pass it", "[address]") {
  const std::string longest = "unix:/" + std::string(sizeof(sockaddr_un::sun_path) - 2, 'p');
  CHECK(address(longest).to_string() == longest);
  const auto longer = SocketAddress::parse(longest + "p");
  REQUIRE_FALSE(longer);
  CHECK(longer.error().message.find("107 bytes") != std::string::npos);
}

TEST_CASE("an unnamed unix peer has a text too", "[address]") {
  sockaddr_un unnamed{};
  unnamed.sun_family = AF_UNIX;
  const auto peer =
      SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&unnamed), sizeof(sa_family_t));
  CHECK(peer.to_string() == "unix:");
  CHECK(peer.is_unix());
  CHECK(peer.size() == sizeof(sa_family_t));
  CHECK_FALSE(peer == SocketAddress());
}

TEST_CASE("a copy of an address is its equal, and no heap is spent on it", "[address]") {
  for (const char* text : {"192.0.2.1:443", "[2001:db8::1]:443", "unix:/run/x.sock", "unix:@abstract"}) {
    auto original = std::make_unique<SocketAddress>(address(text));
    const std::uint64_t before = support::allocations();
    const SocketAddress copy = *original;
    CHECK(support::allocations() == before);
    CHECK(copy == *original);
    original.reset();
    CHECK(copy.to_string() == text);
  }
}

TEST_CASE("a port set on one copy is not seen by the other", "[address]") {
  const SocketAddress original = address("192.0.2.1:443");
  SocketAddress copy = original;
  copy.set_port(444);
  CHECK(original.port() == 443);
}

TEST_CASE("equal addresses are equal whatever buffer they came in", "[address]") {
  for (const char* text : {"192.0.2.1:443", "[2001:db8::1]:443"}) {
    const SocketAddress parsed = address(text);
    sockaddr_storage buffer;
    std::memset(&buffer, 0xee, sizeof(buffer));
    std::memcpy(&buffer, parsed.data(), parsed.size());
    const auto copied =
        SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&buffer), sizeof(buffer));
    CHECK(copied == parsed);
    CHECK(copied.size() == parsed.size());
  }
  CHECK_FALSE(address("192.0.2.1:443") == address("192.0.2.1:444"));
  CHECK_FALSE(address("192.0.2.1:443") == address("[::ffff:192.0.2.1]:443"));
}

TEST_CASE("bytes too short for their family are no address", "[address]") {
  const SocketAddress parsed = address("[2001:db8::1]:443");
  CHECK(SocketAddress::from_sockaddr(parsed.data(), sizeof(sockaddr_in)).family() == AF_UNSPEC);
  CHECK(SocketAddress::from_sockaddr(parsed.data(), 1).family() == AF_UNSPEC);
  CHECK(SocketAddress::from_sockaddr(parsed.data(), 0).family() == AF_UNSPEC);
}

TEST_CASE("an address of a family that nobody here connects to is no address", "[address]") {
  sockaddr_storage other{};
  other.ss_family = AF_NETLINK;
  const auto none = SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&other), sizeof(other));
  CHECK(none == SocketAddress());
  CHECK(none.size() == 0);
  CHECK(none.data()->sa_family == AF_UNSPEC);
}

TEST_CASE("a network contains its addresses to the last bit", "[address]") {
  CHECK(network("192.0.2.0/25").contains(ip("192.0.2.127")));
  CHECK_FALSE(network("192.0.2.0/25").contains(ip("192.0.2.128")));
  CHECK(network("192.0.2.1").contains(ip("192.0.2.1")));
  CHECK_FALSE(network("192.0.2.1").contains(ip("192.0.2.0")));
  CHECK(network("0.0.0.0/0").contains(ip("203.0.113.9")));
  CHECK(network("2001:db8::/33").contains(ip("2001:db8:7fff::")));
  CHECK_FALSE(network("2001:db8::/33").contains(ip("2001:db8:8000::")));
  CHECK_FALSE(network("192.0.2.0/24").contains(address("unix:/x")));
  CHECK_FALSE(network("0.0.0.0/0").contains(SocketAddress()));
}

TEST_CASE("an IPv4 client is in IPv4 networks only, whatever socket it came by", "[address]") {
  CHECK(network("192.0.2.0/24").contains(ip("::ffff:192.0.2.7")));
  CHECK(network("::ffff:192.0.2.0/120").contains(ip("192.0.2.7")));
  CHECK_FALSE(network("::/0").contains(ip("192.0.2.7")));
  CHECK_FALSE(network("::/0").contains(ip("::ffff:192.0.2.7")));
  CHECK(network("::/0").contains(ip("2001:db8::1")));
  CHECK_FALSE(network("0.0.0.0/0").contains(ip("2001:db8::1")));
}

TEST_CASE("a network is read back from its own text", "[address]") {
  for (const char* text : {"192.0.2.0/24", "0.0.0.0/0", "192.0.2.1/32", "2001:db8::/32", "::/0", "::1/128"}) {
    CHECK(network(text).to_string() == text);
  }
  CHECK(network("192.0.2.1").to_string() == "192.0.2.1/32");
}

TEST_CASE("a network with a slip in its length is refused", "[address]") {
  for (const char* text :
       {"192.0.2.0/33", "192.0.2.0/", "192.0.2.0/-1", "192.0.2.0/024", "192.0.2.1/24", "192.0.2/24",
        "2001:db8::/129", "2001:db8::1/64", "/24", "", "localhost", "192.0.2.0/24/24"}) {
    INFO(text);
    CHECK_FALSE(Network::parse(text));
  }
}
