// The configuration as plain values, with the defaults a missing key gets.
//
// Front ends (YAML now) fill these structs; everything behind them reads nothing else. Values that a
// later check may complain about carry the mark of where they stood in the file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "os/address.h"

namespace tlsproxy::config {

using Milliseconds = std::chrono::milliseconds;
using namespace std::chrono_literals;

// A place in a configuration file, both counted from 1; 0 means "no place" (a default).
struct Mark {
  int line = 0;
  int column = 0;
};

struct Text {
  std::string value;
  Mark mark;
};

// --- TLS -----------------------------------------------------------------------------------------

enum class TlsVersion : std::uint8_t { tls1_0, tls1_1, tls1_2, tls1_3 };
enum class ClientAuthMode : std::uint8_t { none, optional, required };

// A chain with its key, both PEM files (they may be one file), or a certificate made at start.
struct Certificate {
  Text chain;
  Text key;
  Text password_file;  // empty: the key must not be encrypted. One passphrase a line, each is tried
  bool self_signed = false;
  Mark mark;
};

struct ClientAuth {
  ClientAuthMode mode = ClientAuthMode::none;
  Text ca;                // PEM bundle of trust anchors; needed unless mode is none
  int depth = 1;          // intermediates between the client's certificate and a trust anchor
  std::vector<Text> crl;  // PEM files; when given, every certificate of the chain needs one
  Mark mark;
};

struct TlsPolicy {
  std::vector<Certificate> certificates;
  TlsVersion min_version = TlsVersion::tls1_2;
  TlsVersion max_version = TlsVersion::tls1_3;
  Text ciphers{"HIGH:!aNULL:!MD5", {}};  // OpenSSL cipher list, TLS 1.2 and older
  Text ciphersuites;                     // TLS 1.3; empty: OpenSSL's default
  Text groups;                           // key exchange groups, "X25519:P-256"; empty: OpenSSL's default
  std::vector<Text> alpn;                // in order of preference; empty: ALPN is not negotiated
  ClientAuth client_auth;
};

// Another policy for some names. Complete: what the file left out was inherited by the loader.
struct HostPolicy {
  std::vector<Text> sni;  // exact names or "*.example.com" (one label), lower case
  TlsPolicy policy;
  Mark mark;
};

struct ServerTls {
  TlsPolicy policy;
  std::vector<HostPolicy> hosts;
  Mark mark;
};

enum class TlsMode : std::uint8_t { none, terminate, passthrough };

// --- listeners -----------------------------------------------------------------------------------

// One address to listen on, or an inherited socket named by systemd (then `address` has no family).
struct Bind {
  Text text;  // as written, without the expansion of port ranges
  os::SocketAddress address;
  std::string systemd_name;  // LISTEN_FDNAMES entry, from "systemd:NAME"
  int backlog = 511;         // nginx's default on Linux
  bool v6only = true;        // nginx's default; an explicit false takes IPv4 clients too
};

struct Timeouts {
  Milliseconds preread = 30s;     // until the ClientHello of a passed-through connection is in
  Milliseconds handshake = 60s;   // client's TLS handshake, from accept
  Milliseconds connect = 60s;     // one connection attempt, and the TLS handshake after it
  Milliseconds idle = 10min;      // without a byte in either direction
  Milliseconds half_close = 60s;  // without a byte after one direction has ended
  Milliseconds linger = 5s;       // for a peer to end its side after we have ended ours
};

// Every test present must hold; a route without tests is the default.
struct Route {
  std::vector<Text> sni;   // exact or "*.example.com" (one label), lower case
  std::vector<Text> alpn;  // any of them in the client's list
  std::vector<os::Network> source;
  std::optional<bool> tls;  // whether the connection began with a ClientHello
  Text to;                  // name of a backend
  Mark mark;
};

struct Listener {
  std::string name;
  std::vector<Bind> bind;
  TlsMode tls_mode = TlsMode::none;
  ServerTls tls;  // meaningful when tls_mode is terminate
  bool half_close = true;
  std::size_t preread_buffer = 16 * 1024;  // largest ClientHello that is waited for, bytes
  Timeouts timeouts;
  std::vector<Route> routes;
  Mark mark;
};

// --- backends ------------------------------------------------------------------------------------

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

struct Server {
  Text text;                                     // as written
  std::variant<os::SocketAddress, HostPort> at;  // numeric or unix address, or a name to resolve
  std::uint32_t weight = 1;                      // 1 to 65535
  std::uint32_t max_fails = 1;                   // failures within fail_timeout that bench it; 0: never
  Milliseconds fail_timeout = 10s;               // window of counting, and length of the bench
  bool backup = false;                           // used only when no other server is available
  bool down = false;                             // never used
};

struct ClientTls {
  Text server_name;  // SNI and the name verified; empty: the server's host name, or its IP (then no SNI)
  bool verify = true;
  Text ca;  // PEM bundle; empty: the system's
  std::vector<Text> crl;
  int depth = 4;
  std::optional<Certificate> certificate;  // shown when the backend asks
  TlsVersion min_version = TlsVersion::tls1_2;
  TlsVersion max_version = TlsVersion::tls1_3;
  Text ciphers;
  Text ciphersuites;
  Text groups;
  std::vector<Text> alpn;
  Mark mark;
};

enum class BackendKind : std::uint8_t { servers, respond, echo };

struct Backend {
  std::string name;
  BackendKind kind = BackendKind::servers;
  std::string respond;  // the text, for BackendKind::respond
  std::vector<Server> servers;
  std::optional<ClientTls> tls;
  std::uint32_t tries = 0;  // cap of servers tried for one session; 0: each once
  Mark mark;
};

// --- the rest ------------------------------------------------------------------------------------

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };
enum class LogFormat : std::uint8_t { logfmt, json };

struct AccessLog {
  Text path;  // "stderr", "stdout" or a file
  LogFormat format = LogFormat::logfmt;
};

struct Log {
  LogLevel level = LogLevel::info;
  Text path{"stderr", {}};
  std::optional<AccessLog> access;  // absent: no access log
};

struct Resolver {
  std::vector<os::SocketAddress> servers;  // empty: the system's (resolv.conf)
  Milliseconds timeout = 5s;               // of one query
  Milliseconds valid{0};                   // how long an answer is used; 0: as long as its TTL says
  bool ipv4 = true;
  bool ipv6 = true;
};

struct Config {
  std::uint32_t workers = 0;                       // 0: one per CPU this process may run on
  Text user;                                       // empty: not given
  Text group;                                      // empty: the user's primary group
  Text pid_file;                                   // empty: none
  Milliseconds drain = 60s;                        // how long sessions may last after QUIT
  std::optional<Milliseconds> drain_after_reload;  // same for older generations; absent: until they end
  std::size_t buffer_memory = 512U * 1024 * 1024;  // per worker, bytes, for all relay buffers together
  Log log;
  Resolver resolver;
  std::vector<Listener> listeners;
  std::vector<Backend> backends;
};

}  // namespace tlsproxy::config
