// Notation: the small languages inside single values: where to listen, where servers are, which names
// a pattern covers. Pure: text in, value or the reason out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "config/model.h"
#include "os/address.h"

namespace tlsproxy::config {

inline constexpr std::size_t kMostPorts = 1024;  // of one range

// "443", ":443" and "*:443" (every IPv4 address), "192.0.2.1:443", "[2001:db8::1]:443", any of these
// with a range as "8000-8010", "unix:/path", "unix:@name", "systemd:NAME". One Bind for each port, with
// `text` as written and without mark. Port 0 lets the kernel choose.
base::Result<std::vector<Bind>> parse_bind(std::string_view text);

// What parse_bind() reads back to the same address.
std::string bind_text(const Bind& bind);

// "10.0.0.5:8080", "[::1]:80", "name.example:80", "unix:/path". The port is required and not 0.
base::Result<std::variant<os::SocketAddress, HostPort>> parse_server(std::string_view text);

// A name server: a numeric address with or without a port (53).
base::Result<os::SocketAddress> parse_name_server(std::string_view text);

// A host name, or "*." and a host name for exactly one more label; in lower case, without a dot at its
// end. Underscores are taken since names with them are in use; other scripts come as xn-- (RFC 5890).
base::Result<std::string> parse_name_pattern(std::string_view text);

// An ALPN protocol name, 1 to 255 bytes (RFC 7301, 3.1).
base::Status check_alpn(std::string_view name);

// A name of ours (listener, backend): letters, digits, '_', '.', '-'; at most 64.
base::Status check_name(std::string_view name);

}  // namespace tlsproxy::config
