#include "os/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tlsproxy::os {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_mapped(const std::array<std::uint8_t, 16>& bytes) {
  return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes.begin());
}

std::optional<unsigned> parse_decimal(std::string_view text, unsigned limit) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > limit) return std::nullopt;
  return value;
}

std::string ip_text(const std::array<std::uint8_t, 16>& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_mapped(bytes)) {
    ::inet_ntop(AF_INET, bytes.data() + kMappedPrefix.size(), text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
  }
  return text;
}

base::Result<SocketAddress> parse_unix(std::string_view text, std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path == "@") return base::failure("'" + std::string(text) + "' names no path");
  if (path.find('\0') != std::string_view::npos) return base::failure("a unix socket's path has a NUL byte");
  if (path.size() >= sizeof(address.sun_path)) {
    return base::failure("the path of '" + std::string(text) + "' is longer than the " +
                         std::to_string(sizeof(address.sun_path) - 1) + " bytes a unix socket may have");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  std::size_t length = offsetof(sockaddr_un, sun_path) + path.size();
  if (path[0] == '@') {
    address.sun_path[0] = '\0';  // unix(7): an abstract name starts with a NUL and has no other end
  } else {
    length += 1;
  }
  return SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&address),
                                      static_cast<socklen_t>(length));
}

}  // namespace

SocketAddress SocketAddress::from_sockaddr(const sockaddr* address, socklen_t length) {
  SocketAddress result;
  if (length < sizeof(sa_family_t)) return result;
  // The length may be that of a buffer; equal addresses must not differ by it.
  if (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
    std::memcpy(&result.address_.emplace<sockaddr_in>(), address, sizeof(sockaddr_in));
  } else if (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    std::memcpy(&result.address_.emplace<sockaddr_in6>(), address, sizeof(sockaddr_in6));
  } else if (address->sa_family == AF_UNIX) {
    SharedName& shared = result.address_.emplace<SharedName>();
    if (length <= offsetof(sockaddr_un, sun_path)) return result;
    auto name = std::make_shared<UnixName>();
    name->length = std::min<socklen_t>(length, sizeof(sockaddr_un));
    std::memcpy(&name->address, address, name->length);
    shared = std::move(name);
  }
  return result;
}

std::optional<SocketAddress> SocketAddress::from_ip(std::string_view ip, std::uint16_t port) {
  const std::string text(ip);
  if (text.find('\0') != std::string::npos) return std::nullopt;  // inet_pton would stop there
  SocketAddress result;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    result.address_ = v4;
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    result.address_ = v6;
  } else {
    return std::nullopt;
  }
  result.set_port(port);
  return result;
}

base::Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) return parse_unix(text, text.substr(kUnix.size()));
  const std::size_t colon = text.rfind(':');
  const std::string quoted = "'" + std::string(text) + "'";
  if (colon == std::string_view::npos) return base::failure(quoted + " has no port (address:port)");
  std::string_view ip = text.substr(0, colon);
  const bool bracketed = ip.size() >= 2 && ip.front() == '[' && ip.back() == ']';
  if (bracketed) ip = ip.substr(1, ip.size() - 2);
  if (!bracketed && ip.find(':') != std::string_view::npos) {
    return base::failure(quoted +
                         " is not an address with a port: IPv6 addresses stand in brackets, as in [::1]:443");
  }
  const auto port = parse_decimal(text.substr(colon + 1), 65535);
  if (!port) {
    return base::failure(quoted +
                         " has no valid port: a decimal number from 0 to 65535 after the last colon");
  }
  auto address = from_ip(ip, static_cast<std::uint16_t>(*port));
  if (!address || (address->family() == AF_INET6) != bracketed) {
    return base::failure(quoted + " is not a numeric address");
  }
  return *address;
}

const sockaddr* SocketAddress::data() const {
  static constexpr sockaddr kNone{AF_UNSPEC, {}};
  static constexpr sockaddr kUnnamed{AF_UNIX, {}};
  if (const auto* v4 = std::get_if<sockaddr_in>(&address_)) return reinterpret_cast<const sockaddr*>(v4);
  if (const auto* v6 = std::get_if<sockaddr_in6>(&address_)) return reinterpret_cast<const sockaddr*>(v6);
  const auto* name = std::get_if<SharedName>(&address_);
  if (name == nullptr) return &kNone;
  return *name == nullptr ? &kUnnamed : reinterpret_cast<const sockaddr*>(&(*name)->address);
}

socklen_t SocketAddress::size() const {
  if (std::holds_alternative<sockaddr_in>(address_)) return sizeof(sockaddr_in);
  if (std::holds_alternative<sockaddr_in6>(address_)) return sizeof(sockaddr_in6);
  const auto* name = std::get_if<SharedName>(&address_);
  if (name == nullptr) return 0;
  return *name == nullptr ? socklen_t{sizeof(sa_family_t)} : (*name)->length;
}

std::uint16_t SocketAddress::port() const {
  if (const auto* v4 = std::get_if<sockaddr_in>(&address_)) return ntohs(v4->sin_port);
  if (const auto* v6 = std::get_if<sockaddr_in6>(&address_)) return ntohs(v6->sin6_port);
  return 0;
}

void SocketAddress::set_port(std::uint16_t port) {
  if (auto* v4 = std::get_if<sockaddr_in>(&address_)) v4->sin_port = htons(port);
  if (auto* v6 = std::get_if<sockaddr_in6>(&address_)) v6->sin6_port = htons(port);
}

std::optional<std::array<std::uint8_t, 16>> SocketAddress::ip_bytes() const {
  std::array<std::uint8_t, 16> bytes{};
  if (const auto* v6 = std::get_if<sockaddr_in6>(&address_)) {
    std::memcpy(bytes.data(), &v6->sin6_addr, bytes.size());
  } else if (const auto* v4 = std::get_if<sockaddr_in>(&address_)) {
    std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), bytes.begin());
    std::memcpy(bytes.data() + kMappedPrefix.size(), &v4->sin_addr, 4);
  } else {
    return std::nullopt;
  }
  return bytes;
}

std::string SocketAddress::host() const {
  if (const auto bytes = ip_bytes()) return ip_text(*bytes);
  const auto* name = std::get_if<SharedName>(&address_);
  if (name == nullptr) return "";
  if (*name == nullptr) return "unix:";
  std::string path((*name)->address.sun_path, (*name)->length - offsetof(sockaddr_un, sun_path));
  if (path[0] == '\0') {
    path[0] = '@';
  } else {
    path.resize(path.find('\0') == std::string::npos ? path.size() : path.find('\0'));
  }
  return "unix:" + path;
}

std::string SocketAddress::to_string() const {
  const auto bytes = ip_bytes();
  if (!bytes) return host();
  const std::string ip = ip_text(*bytes);
  const std::string suffix = ":" + std::to_string(port());
  return is_mapped(*bytes) ? ip + suffix : "[" + ip + "]" + suffix;
}

bool operator==(const SocketAddress& a, const SocketAddress& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

base::Result<Network> Network::parse(std::string_view text) {
  const std::string quoted = "'" + std::string(text) + "'";
  const std::size_t slash = text.find('/');
  const auto address = SocketAddress::from_ip(text.substr(0, slash), 0);
  if (!address)
    return base::failure(quoted + " is not a network in CIDR form, as 192.0.2.0/24 or 2001:db8::/32");
  const unsigned width = address->family() == AF_INET ? 32 : 128;
  unsigned bits = width;
  if (slash != std::string_view::npos) {
    const auto length = parse_decimal(text.substr(slash + 1), width);
    if (!length) {
      return base::failure(quoted + " has no valid prefix length: 0 to " + std::to_string(width) +
                           " after the slash");
    }
    bits = *length;
  }
  Network network;
  network.prefix_ = *address->ip_bytes();
  network.bits_ = bits + (128 - width);
  for (unsigned bit = network.bits_; bit < 128; ++bit) {
    if ((network.prefix_[bit / 8] & (0x80U >> (bit % 8))) != 0) {
      return base::failure(quoted + " has address bits beyond its prefix length");
    }
  }
  return network;
}

bool Network::contains(const SocketAddress& address) const {
  const auto bytes = address.ip_bytes();
  if (!bytes || (is_mapped(*bytes) && !(is_mapped(prefix_) && bits_ >= 96))) return false;
  const unsigned whole = bits_ / 8;
  if (std::memcmp(prefix_.data(), bytes->data(), whole) != 0) return false;
  if (bits_ % 8 == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff00U >> (bits_ % 8));
  return ((prefix_[whole] ^ (*bytes)[whole]) & mask) == 0;
}

std::string Network::to_string() const {
  const bool v4 = is_mapped(prefix_) && bits_ >= 96;
  return ip_text(prefix_) + "/" + std::to_string(v4 ? bits_ - 96 : bits_);
}

}  // namespace tlsproxy::os
