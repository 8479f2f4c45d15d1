#include "config/notation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "config/units.h"

namespace tlsproxy::config {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kSystemd = "systemd:";

std::string quoted(std::string_view text) {
  return "'" + base::escape(text, 80) + "'";
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool all_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_digit);
}

base::Result<os::SocketAddress> parse_unix(std::string_view text) {
  const std::string_view path = text.substr(kUnix.size());
  if (!path.empty() && path[0] != '/' && path[0] != '@') {
    return base::failure(quoted(text) + " is no absolute path; an abstract name begins with '@'");
  }
  return os::SocketAddress::parse(text);
}

base::Result<std::uint16_t> parse_port(std::string_view text, std::uint64_t least) {
  const auto port = parse_number(text, least, 65535);
  if (!port) return base::failure("port " + port.error().message);
  return static_cast<std::uint16_t>(*port);
}

struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

base::Result<PortRange> parse_ports(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos || dash == 0) {
    const auto port = parse_port(text, 0);
    if (!port) return tl::unexpected(port.error());
    return PortRange{*port, *port};
  }
  const auto first = parse_port(text.substr(0, dash), 1);
  if (!first) return tl::unexpected(first.error());
  const auto last = parse_port(text.substr(dash + 1), 1);
  if (!last) return tl::unexpected(last.error());
  if (*last < *first) return base::failure("port range " + quoted(text) + " runs backwards");
  if (*last - *first >= static_cast<int>(kMostPorts)) {
    return base::failure("port range " + quoted(text) + " has more than " + std::to_string(kMostPorts) +
                         " ports");
  }
  return PortRange{*first, *last};
}

// "host:port" cut at the last colon, the brackets of an IPv6 address removed.
struct HostAndPort {
  std::string_view host;
  std::string_view port;
  bool bracketed = false;
};

base::Result<HostAndPort> split_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const bool only_address = text.ends_with(']') || (text.starts_with("::") && text.size() < 3);
  if (colon == std::string_view::npos || only_address) return base::failure(quoted(text) + " has no port");
  HostAndPort split{text.substr(0, colon), text.substr(colon + 1)};
  split.bracketed = split.host.size() >= 2 && split.host.front() == '[' && split.host.back() == ']';
  if (split.bracketed) {
    split.host = split.host.substr(1, split.host.size() - 2);
  } else if (split.host.find(':') != std::string_view::npos) {
    return base::failure(quoted(text) +
                         " is ambiguous: an IPv6 address stands in brackets, as in \"[::]:443\"");
  }
  return split;
}

base::Status check_label(std::string_view label) {
  if (label.empty()) return base::failure(" has an empty label");
  if (label.size() > 63) return base::failure(" has a label of more than 63 letters");
  for (const char c : label) {
    if (is_letter(c) || is_digit(c) || c == '-' || c == '_') continue;
    if (c == '*')
      return base::failure(": '*' stands only for the first label as a whole, as in \"*.example.com\"");
    if ((static_cast<unsigned char>(c) & 0x80U) != 0) {
      return base::failure(" is not ASCII; write it in its xn-- form");
    }
    return base::failure(" has the character '" + base::escape(std::string_view(&c, 1)) +
                         "', which no host name has");
  }
  return {};
}

// Lower case, without the dot at the end; the error lacks the name.
base::Result<std::string> normal_host_name(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.size() > 253) return base::failure(" is longer than 253 letters");
  std::string_view rest = name;
  for (;;) {
    const std::size_t dot = rest.find('.');
    const auto sound = check_label(rest.substr(0, dot));
    if (!sound) return tl::unexpected(sound.error());
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  return base::to_lower(name);
}

}  // namespace

base::Result<std::vector<Bind>> parse_bind(std::string_view text) {
  Bind bind;
  bind.text.value = std::string(text);
  if (text.starts_with(kSystemd)) {
    bind.systemd_name = std::string(text.substr(kSystemd.size()));
    // sd_listen_fds_with_names(3): FDNAME= is at most 255 printable characters without ':'.
    if (bind.systemd_name.empty() || bind.systemd_name.size() > 255 ||
        bind.systemd_name.find(':') != std::string::npos) {
      return base::failure(quoted(text) +
                           " names no socket; FileDescriptorName= has 1 to 255 letters, no ':'");
    }
    return std::vector<Bind>{bind};
  }
  if (text.starts_with(kUnix)) {
    const auto address = parse_unix(text);
    if (!address) return tl::unexpected(address.error());
    bind.address = *address;
    return std::vector<Bind>{bind};
  }

  HostAndPort split{"0.0.0.0", text};
  if (text.empty() || !all_digits(text.substr(0, text.find('-')))) {
    const auto parts = split_host_port(text);
    if (!parts) {
      return base::failure(text.starts_with("::")
                               ? quoted(text) + " is ambiguous: every IPv6 address is \"[::]:PORT\""
                               : parts.error().message);
    }
    split = *parts;
    if (!split.bracketed && (split.host.empty() || split.host == "*")) split.host = "0.0.0.0";
  }
  const auto ip = os::SocketAddress::from_ip(split.host, 0);
  if (!ip || (ip->family() == AF_INET6) != split.bracketed) {
    return base::failure(quoted(text) +
                         " is not a numeric address with a port, as \"192.0.2.1:443\", "
                         "\"[::]:443\" or \":443\"");
  }
  if (ip->family() == AF_INET6 && ip->to_string()[0] != '[') {
    return base::failure(quoted(text) + " is an IPv4 address in IPv6 form; write the IPv4 address");
  }
  const auto ports = parse_ports(split.port);
  if (!ports) return base::failure(quoted(text) + ": " + ports.error().message);
  std::vector<Bind> binds;
  for (unsigned port = ports->first; port <= ports->last; ++port) {
    bind.address = *ip;
    bind.address.set_port(static_cast<std::uint16_t>(port));
    binds.push_back(bind);
  }
  return binds;
}

std::string bind_text(const Bind& bind) {
  if (!bind.systemd_name.empty()) return std::string(kSystemd) + bind.systemd_name;
  return bind.address.to_string();
}

base::Result<std::variant<os::SocketAddress, HostPort>> parse_server(std::string_view text) {
  if (text.starts_with(kUnix)) {
    auto address = parse_unix(text);
    if (!address) return tl::unexpected(address.error());
    return *address;
  }
  const auto split = split_host_port(text);
  if (!split) return base::failure(split.error().message + "; a server is \"HOST:PORT\" or \"unix:/PATH\"");
  const auto port = parse_port(split->port, 1);
  if (!port) return base::failure(quoted(text) + ": " + port.error().message);
  if (const auto ip = os::SocketAddress::from_ip(split->host, *port)) {
    if ((ip->family() == AF_INET6) == split->bracketed) return *ip;
  }
  if (split->bracketed) return base::failure(quoted(text) + " has no IPv6 address in its brackets");
  const auto name = normal_host_name(split->host);
  if (!name) return base::failure(quoted(split->host) + name.error().message);
  // A last label of digits makes it an IPv4 address for everyone (RFC 1123, 2.1), and it is none.
  if (all_digits(std::string_view(*name).substr(name->rfind('.') + 1))) {
    return base::failure(quoted(split->host) + " is neither a host name nor an IPv4 address");
  }
  return HostPort{*name, *port};
}

base::Result<os::SocketAddress> parse_name_server(std::string_view text) {
  constexpr std::uint16_t kDomain = 53;
  if (const auto ip = os::SocketAddress::from_ip(text, kDomain)) return *ip;
  if (text.starts_with('[') && text.ends_with(']')) {
    const auto ip = os::SocketAddress::from_ip(text.substr(1, text.size() - 2), kDomain);
    if (ip && ip->family() == AF_INET6) return *ip;
  }
  const auto address = os::SocketAddress::parse(text);
  if (!address || !address->is_ip()) {
    return base::failure(quoted(text) + " is not a numeric address, with or without a port");
  }
  if (address->port() == 0) return base::failure(quoted(text) + " has port 0");
  return *address;
}

base::Result<std::string> parse_name_pattern(std::string_view text) {
  constexpr std::string_view kWildcard = "*.";
  if (text == "*") {
    return base::failure(
        "'*' covers no name; a route without tests and the listener's own tls take the rest");
  }
  if (text.starts_with('.')) {
    return base::failure(quoted(text) + " begins with a dot; \"*" + base::escape(text, 80) +
                         "\" covers names of one more label");
  }
  const bool wildcard = text.starts_with(kWildcard);
  const auto name = normal_host_name(wildcard ? text.substr(kWildcard.size()) : text);
  if (!name) return base::failure(quoted(text) + name.error().message);
  return (wildcard ? std::string(kWildcard) : std::string()) + *name;
}

base::Status check_alpn(std::string_view name) {
  if (name.empty() || name.size() > 255) {
    return base::failure(quoted(name) + " is no ALPN protocol name: 1 to 255 bytes");
  }
  return {};
}

base::Status check_name(std::string_view name) {
  const bool sound = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
  });
  if (sound) return {};
  return base::failure(quoted(name) + " is no name: 1 to 64 letters, digits, '_', '.' or '-'");
}

}  // namespace tlsproxy::config
