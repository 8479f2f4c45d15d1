// The schema: every key of the configuration, described once. Reading, writing, "did you mean" and the
// tests of the manual all run over these descriptions (config/fields.h says how).
//
// A new key is one line in a `fields` here, one member in config/model.h, one line in
// conf/reference.yaml and one entry in packaging/tlsproxy.yaml.5; a test asks for the last two.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/fields.h"
#include "config/model.h"

namespace tlsproxy::config {

// --- kinds of this schema alone; schema.cc has their bodies ---------------------------------------

struct LogLevelWords {
  using Value = LogLevel;
  static constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kWords{{{"debug", LogLevel::debug},
                                                                                {"info", LogLevel::info},
                                                                                {"warn", LogLevel::warn},
                                                                                {"error", LogLevel::error},
                                                                                {"off", LogLevel::off}}};
};

struct LogFormatWords {
  using Value = LogFormat;
  static constexpr std::array<std::pair<std::string_view, LogFormat>, 2> kWords{
      {{"logfmt", LogFormat::logfmt}, {"json", LogFormat::json}}};
};

struct TlsVersionWords {
  using Value = TlsVersion;
  static constexpr std::array<std::pair<std::string_view, TlsVersion>, 4> kWords{
      {{"TLSv1", TlsVersion::tls1_0},
       {"TLSv1.1", TlsVersion::tls1_1},
       {"TLSv1.2", TlsVersion::tls1_2},
       {"TLSv1.3", TlsVersion::tls1_3}}};
};

struct ClientAuthWords {
  using Value = ClientAuthMode;
  static constexpr std::array<std::pair<std::string_view, ClientAuthMode>, 3> kWords{
      {{"none", ClientAuthMode::none},
       {"optional", ClientAuthMode::optional},
       {"required", ClientAuthMode::required}}};
};

// A number, or "auto" for one per CPU.
struct Workers : Leaf {
  static void read(const Item& item, std::uint32_t& value);
  static std::optional<Node> write(std::uint32_t value);
};

// A duration, or "never".
struct DurationOrNever : Leaf {
  static void read(const Item& item, std::optional<Milliseconds>& value);
  static std::optional<Node> write(const std::optional<Milliseconds>& value);
};

// A duration; zero is its default, has no spelling and is not written.
struct DurationOrUnset : Duration {
  static std::optional<Node> write(Milliseconds value);
};

// A boolean that is false unless given, and only then written.
struct FlagIfSet : Flag {
  static std::optional<Node> write(bool value);
};

// A listener's or backend's own name.
struct OwnName : Leaf {
  static void read(const Item& item, std::string& value);
  static std::optional<Node> write(const std::string& value);
};

struct NameServer : Leaf {
  using Value = os::SocketAddress;
  static void read(const Item& item, os::SocketAddress& value);
  static std::optional<Node> write(const os::SocketAddress& value);
};

struct NamePattern : Leaf {
  using Value = Text;
  static void read(const Item& item, Text& value);
  static std::optional<Node> write(const Text& value);
};

struct AlpnName : Leaf {
  using Value = Text;
  static void read(const Item& item, Text& value);
  static std::optional<Node> write(const Text& value);
};

// ALPN names in order, none twice; an empty list undoes an inherited one.
struct AlpnList : OneOrMore<AlpnName, Empty::allowed> {
  static void read(const Item& item, std::vector<Text>& values);
};

struct SourceNetwork : Leaf {
  using Value = os::Network;
  static void read(const Item& item, os::Network& value);
  static std::optional<Node> write(const os::Network& value);
};

using PathList = OneOrMore<Line, Empty::allowed>;
using NamePatterns = OneOrMore<NamePattern>;

// --- logs and names -------------------------------------------------------------------------------

struct AccessLogKeys {
  using Value = AccessLog;
  static constexpr std::string_view kNoun = "the access log";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& log) {
    v("path", log.path, Line{});
    v("format", log.format, Choice<LogFormatWords>{});
  }
  static void check(FieldReader& reader, AccessLog&) { reader.require("path"); }
};

struct LogKeys {
  using Value = Log;
  static constexpr std::string_view kNoun = "log";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& log) {
    v("level", log.level, Choice<LogLevelWords>{});
    v("path", log.path, Line{});
    v("access", log.access, Optional<Map<AccessLogKeys>>{});
  }
};

struct ResolverKeys {
  using Value = Resolver;
  static constexpr std::string_view kNoun = "resolver";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& resolver) {
    v("servers", resolver.servers, OneOrMore<NameServer>{});
    v("timeout", resolver.timeout, Duration{});
    v("valid", resolver.valid, DurationOrUnset{});
    v("ipv4", resolver.ipv4, Flag{});
    v("ipv6", resolver.ipv6, Flag{});
  }
  static void check(FieldReader& reader, Resolver& resolver);
};

// --- TLS ------------------------------------------------------------------------------------------

struct ServerCertificateKeys {
  using Value = Certificate;
  static constexpr std::string_view kNoun = "a certificate";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& certificate) {
    v("chain", certificate.chain, Line{});
    v("key", certificate.key, Line{});
    v("password_file", certificate.password_file, Line{});
    v("self_signed", certificate.self_signed, FlagIfSet{});
  }
  static void check(FieldReader& reader, Certificate& certificate);
};

struct ClientCertificateKeys {
  using Value = Certificate;
  static constexpr std::string_view kNoun = "a client certificate";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& certificate) {
    v("chain", certificate.chain, Line{});
    v("key", certificate.key, Line{});
    v("password_file", certificate.password_file, Line{});
  }
  static void check(FieldReader& reader, Certificate& certificate);
};

struct ClientAuthKeys {
  using Value = ClientAuth;
  static constexpr std::string_view kNoun = "client_auth";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& auth) {
    v("mode", auth.mode, Choice<ClientAuthWords>{});
    v("ca", auth.ca, Line{});
    v("depth", auth.depth, Number<int, 0, 100>{});
    v("crl", auth.crl, PathList{});
  }
  static void check(FieldReader& reader, ClientAuth& auth);
};

// Written without what its mode does not use.
struct ClientAuthMap : Map<ClientAuthKeys> {
  static std::optional<Node> write(const ClientAuth& auth);
};

struct TlsPolicyKeys {
  template <class Visitor, class T>
  static void fields(Visitor& v, T& policy) {
    v("certificates", policy.certificates, OneOrMore<Map<ServerCertificateKeys>>{});
    v("min_version", policy.min_version, Choice<TlsVersionWords>{});
    v("max_version", policy.max_version, Choice<TlsVersionWords>{});
    v("ciphers", policy.ciphers, Line{});
    v("ciphersuites", policy.ciphersuites, Line{});
    v("groups", policy.groups, Line{});
    v("alpn", policy.alpn, AlpnList{});
    v("client_auth", policy.client_auth, ClientAuthMap{});
  }
};

struct HostKeys {
  using Value = HostPolicy;
  static constexpr std::string_view kNoun = "an entry of hosts";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& host) {
    v("sni", host.sni, NamePatterns{});
    TlsPolicyKeys::fields(v, host.policy);
  }
  static void check(FieldReader& reader, HostPolicy& host);
};

// Entries begin as copies of the listener's policy: `hosts` must be the last field of its map.
struct Hosts {
  static void read(const Item& item, ServerTls& tls);
  static std::optional<Node> write(const ServerTls& tls);
  static void keys(const std::string& prefix, std::vector<std::string>& out) {
    Map<HostKeys>::keys(prefix, out);
  }
};

struct ServerTlsKeys {
  using Value = ServerTls;
  static constexpr std::string_view kNoun = "a listener's tls";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& tls) {
    TlsPolicyKeys::fields(v, tls.policy);
    v("hosts", tls, Hosts{});
  }
  static void check(FieldReader& reader, ServerTls& tls);
};

struct ClientTlsKeys {
  using Value = ClientTls;
  static constexpr std::string_view kNoun = "a backend's tls";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& tls) {
    v("server_name", tls.server_name, NamePattern{});
    v("verify", tls.verify, Flag{});
    v("ca", tls.ca, Line{});
    v("crl", tls.crl, OneOrMore<Line>{});
    v("depth", tls.depth, Number<int, 0, 100>{});
    v("certificate", tls.certificate, Optional<Map<ClientCertificateKeys>>{});
    v("min_version", tls.min_version, Choice<TlsVersionWords>{});
    v("max_version", tls.max_version, Choice<TlsVersionWords>{});
    v("ciphers", tls.ciphers, Line{});
    v("ciphersuites", tls.ciphersuites, Line{});
    v("groups", tls.groups, Line{});
    v("alpn", tls.alpn, AlpnList{});
  }
  static void check(FieldReader& reader, ClientTls& tls);
};

// --- listeners ------------------------------------------------------------------------------------

struct BindAddress : Leaf {
  static void read(const Item& item, Bind& bind);
  static std::optional<Node> write(const Bind& bind);
};

// Not written for sockets that systemd listens on.
struct Backlog : Number<int, 1, 65535> {
  static void read(const Item& item, Bind& bind);
  static std::optional<Node> write(const Bind& bind);
};

// Written for IPv6 addresses only.
struct V6Only : Flag {
  static void read(const Item& item, Bind& bind);
  static std::optional<Node> write(const Bind& bind);
};

struct BindKeys {
  using Value = Bind;
  static constexpr std::string_view kNoun = "a bind address";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& bind) {
    v("address", bind, BindAddress{});
    v("backlog", bind, Backlog{});
    v("v6only", bind, V6Only{});
  }
  static void check(FieldReader& reader, Bind&) { reader.require("address"); }
};

// One or several, each a text or a map; a port range becomes one Bind for each port.
struct Binds {
  static void read(const Item& item, std::vector<Bind>& binds);
  static std::optional<Node> write(const std::vector<Bind>& binds);
  static void keys(const std::string& prefix, std::vector<std::string>& out) {
    Map<BindKeys>::keys(prefix, out);
  }
};

struct TimeoutsKeys {
  using Value = Timeouts;
  static constexpr std::string_view kNoun = "timeouts";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& timeouts) {
    v("preread", timeouts.preread, Duration{});
    v("handshake", timeouts.handshake, Duration{});
    v("connect", timeouts.connect, Duration{});
    v("idle", timeouts.idle, Duration{});
    v("half_close", timeouts.half_close, Duration{});
    v("linger", timeouts.linger, Duration{});
  }
};

struct RouteKeys {
  using Value = Route;
  static constexpr std::string_view kNoun = "a route";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& route) {
    v("sni", route.sni, NamePatterns{});
    v("alpn", route.alpn, OneOrMore<AlpnName>{});
    v("source", route.source, OneOrMore<SourceNetwork>{});
    v("tls", route.tls, Optional<Flag>{});
    v("to", route.to, Line{});
  }
  static void check(FieldReader& reader, Route&) { reader.require("to"); }
};

// Short for one route without tests; written as `routes`.
struct OnlyRoute : Leaf {
  static void read(const Item& item, Listener& listener);
  static std::optional<Node> write(const Listener&) { return std::nullopt; }
};

// "passthrough", or the map of a listener that terminates TLS.
struct ListenerTls {
  static void read(const Item& item, Listener& listener);
  static std::optional<Node> write(const Listener& listener);
  static void keys(const std::string& prefix, std::vector<std::string>& out) {
    Map<ServerTlsKeys>::keys(prefix, out);
  }
};

struct ListenerKeys {
  using Value = Listener;
  static constexpr std::string_view kNoun = "a listener";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& listener) {
    v("name", listener.name, OwnName{});
    v("bind", listener.bind, Binds{});
    v("half_close", listener.half_close, Flag{});
    v("preread_buffer", listener.preread_buffer, Size<1024, 64 * 1024>{});
    v("timeouts", listener.timeouts, Map<TimeoutsKeys>{});
    v("tls", listener, ListenerTls{});
    v("to", listener, OnlyRoute{});
    v("routes", listener.routes, Sequence<Map<RouteKeys>>{});
  }
  static void check(FieldReader& reader, Listener& listener);
};

// Names are unique.
struct Listeners : Sequence<Map<ListenerKeys>> {
  static void read(const Item& item, std::vector<Listener>& listeners);
};

// --- backends -------------------------------------------------------------------------------------

struct ServerAddress : Leaf {
  static void read(const Item& item, Server& server);
  static std::optional<Node> write(const Server& server);
};

struct ServerKeys {
  using Value = Server;
  static constexpr std::string_view kNoun = "a server";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& server) {
    v("address", server, ServerAddress{});
    v("weight", server.weight, Number<std::uint32_t, 1, 65535>{});
    v("max_fails", server.max_fails, Number<std::uint32_t, 0, 1'000'000>{});
    v("fail_timeout", server.fail_timeout, Duration{});
    v("backup", server.backup, Flag{});
    v("down", server.down, Flag{});
  }
  static void check(FieldReader& reader, Server&) { reader.require("address"); }
};

// A map, or its address alone.
struct ServerItem : Map<ServerKeys> {
  static void read(const Item& item, Server& server);
};

// A text of any kind, line ends included.
struct RespondText : Leaf {
  static void read(const Item& item, Backend& backend);
  static std::optional<Node> write(const Backend& backend);
};

struct Echo : Flag {
  static void read(const Item& item, Backend& backend);
  static std::optional<Node> write(const Backend& backend);
};

// Not written for built-in backends, which refuse it.
struct Tries : Leaf {
  static void read(const Item& item, Backend& backend);
  static std::optional<Node> write(const Backend& backend);
};

// A map, or true for a map of defaults.
struct BackendTls : Optional<Map<ClientTlsKeys>> {
  static void read(const Item& item, std::optional<ClientTls>& tls);
};

struct BackendKeys {
  using Value = Backend;
  static constexpr std::string_view kNoun = "a backend";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& backend) {
    v("servers", backend.servers, OneOrMore<ServerItem>{});
    v("respond", backend, RespondText{});
    v("echo", backend, Echo{});
    v("tries", backend, Tries{});
    v("tls", backend.tls, BackendTls{});
  }
  static void check(FieldReader& reader, Backend& backend);
};

// A map from names to backends; for a backend its servers alone will do.
struct Backends {
  static void read(const Item& item, std::vector<Backend>& backends);
  static std::optional<Node> write(const std::vector<Backend>& backends);
  static void keys(const std::string& prefix, std::vector<std::string>& out) {
    Map<BackendKeys>::keys(prefix + "NAME.", out);
  }
};

// --- the whole ------------------------------------------------------------------------------------

struct ConfigKeys {
  using Value = Config;
  static constexpr std::string_view kNoun = "the configuration";
  template <class Visitor, class T>
  static void fields(Visitor& v, T& config) {
    v("workers", config.workers, Workers{});
    v("user", config.user, Line{});
    v("group", config.group, Line{});
    v("pid_file", config.pid_file, Line{});
    v("drain", config.drain, Duration{});
    v("drain_after_reload", config.drain_after_reload, DurationOrNever{});
    v("buffer_memory", config.buffer_memory, Size<1024 * 1024, 1024ULL * 1024 * 1024 * 1024>{});
    v("log", config.log, Map<LogKeys>{});
    v("resolver", config.resolver, Map<ResolverKeys>{});
    v("listeners", config.listeners, Listeners{});
    v("backends", config.backends, Backends{});
  }
  static void check(FieldReader& reader, Config&) { reader.require("listeners"); }
};

}  // namespace tlsproxy::config
