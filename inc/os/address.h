// SocketAddress: where a socket is bound or connects to (IPv4, IPv6 or a unix path), as a value.
// Network: an address range in CIDR form, for matching clients.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace tlsproxy::os {

class SocketAddress {
 public:
  SocketAddress() = default;  // no address: family() is AF_UNSPEC

  // Copies what accept4, getpeername or a resolver returned. Too short for its family, or of a family that
  // is none of the three: no address.
  static SocketAddress from_sockaddr(const sockaddr* address, socklen_t length);

  // "192.0.2.1:443", "[2001:db8::1]:443" or "unix:/path" (an abstract name with "unix:@name").
  // Numeric only: a host name is an error here. The port must be there, in decimal, 0 to 65535.
  static base::Result<SocketAddress> parse(std::string_view text);

  // A numeric IPv4 or IPv6 address (without brackets or zone) and a port; nothing when it is not numeric.
  static std::optional<SocketAddress> from_ip(std::string_view ip, std::uint16_t port);

  [[nodiscard]] int family() const { return data()->sa_family; }
  [[nodiscard]] bool is_unix() const { return family() == AF_UNIX; }
  [[nodiscard]] bool is_ip() const { return family() == AF_INET || family() == AF_INET6; }
  // For bind and connect; valid until the address is changed. Of no address: AF_UNSPEC, and the size 0.
  [[nodiscard]] const sockaddr* data() const;
  [[nodiscard]] socklen_t size() const;
  [[nodiscard]] std::uint16_t port() const;  // 0 for unix addresses
  void set_port(std::uint16_t port);         // no effect on unix addresses

  // The IP in text without port; "unix:/path" for unix addresses, "unix:" when it has none.
  [[nodiscard]] std::string host() const;

  // The form that parse() takes. An IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) is written as the
  // IPv4 address it carries, so that one client has one spelling on every listener.
  [[nodiscard]] std::string to_string() const;

  // The 16 bytes of the IPv6 address, or of the mapped form of an IPv4 one; nothing for unix.
  [[nodiscard]] std::optional<std::array<std::uint8_t, 16>> ip_bytes() const;

  friend bool operator==(const SocketAddress& a, const SocketAddress& b);

 private:
  // Four times as long as an IP address and rare: copies of an address share it. Null: an unnamed socket.
  struct UnixName {
    sockaddr_un address{};
    socklen_t length = 0;
  };
  using SharedName = std::shared_ptr<const UnixName>;

  std::variant<std::monostate, sockaddr_in, sockaddr_in6, SharedName> address_;
};
static_assert(sizeof(SocketAddress) <= 40, "every session holds two");

class Network {
 public:
  // "192.0.2.0/24", "2001:db8::/32", or one address without a length; bits beyond the length must be
  // zero, so that a slip in the length does not widen a rule unseen.
  static base::Result<Network> parse(std::string_view text);

  // IPv4-mapped IPv6 clients match IPv4 networks, and no IPv6 network: "::/0" is every IPv6 client, as
  // in nginx. Unix clients match none.
  [[nodiscard]] bool contains(const SocketAddress& address) const;

  [[nodiscard]] std::string to_string() const;

 private:
  std::array<std::uint8_t, 16> prefix_{};
  unsigned bits_ = 0;  // of the 128-bit form: an IPv4 length plus 96
};

}  // namespace tlsproxy::os
