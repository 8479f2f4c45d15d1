#include "config/schema.h"

#include <map>
#include <utility>

#include "base/strings.h"
#include "config/notation.h"
#include "config/units.h"

namespace tlsproxy::config {
namespace {

constexpr std::uint64_t kMostWorkers = 1024;
constexpr std::uint64_t kMostTries = 1000;
constexpr std::size_t kMostBinds = 10'000;
constexpr std::size_t kMostCopied = 200'000;

std::string place_text(Mark mark) {
  return "line " + std::to_string(mark.line) + ", column " + std::to_string(mark.column);
}

// --- what must hold among the keys of one map -----------------------------------------------------

void check_versions(FieldReader& reader, TlsVersion least, TlsVersion most) {
  if (least <= most || reader.first_of({"min_version", "max_version"}) == nullptr) return;
  reader.error(reader.first_of({"min_version", "max_version"})->value.mark,
               "min_version is later than max_version: no version is left");
}

void complete_certificate(FieldReader& reader, Certificate& certificate) {
  if (!reader.has("key")) certificate.key = certificate.chain;
}

void check_exactly_one_target(FieldReader& reader) {
  const bool to = reader.has("to");
  const bool routes = reader.has("routes");
  if (!to && !routes) reader.error(reader.mark(), "a listener needs 'to' or 'routes'");
  if (to && routes)
    reader.error(reader.first_of({"to"})->mark, "a listener has either 'to' or 'routes', not both");
}

// Tests that nothing can answer, and routes that no connection can reach.
void check_routes(FieldReader& reader, const Listener& listener) {
  const Entry* entry = reader.first_of({"routes"});
  if (entry == nullptr || entry->value.kind != Node::Kind::sequence) return;
  const Route* closing = nullptr;
  for (std::size_t i = 0; i < listener.routes.size(); ++i) {
    const Route& route = listener.routes[i];
    const Node& node = entry->value.items[i];
    if (node.kind != Node::Kind::map) continue;
    for (const std::string_view test : {"sni", "alpn", "tls"}) {
      const Entry* given = node.find(test);
      if (given == nullptr || listener.tls_mode != TlsMode::none) continue;
      reader.error(given->mark, "a listener without tls cannot route by '" + std::string(test) +
                                    "'; 'tls: passthrough' reads the ClientHello");
    }
    if (listener.tls_mode == TlsMode::terminate && route.tls == false) {
      reader.warning(node.find("tls")->mark,
                     "this route can never match: the listener takes nothing but TLS");
    }
    if (closing != nullptr) {
      reader.warning(node.mark, "this route can never match: the one at " + place_text(closing->mark) +
                                    " takes every connection");
    }
    const bool tests = !(node.find("sni") == nullptr && node.find("alpn") == nullptr &&
                         node.find("source") == nullptr && node.find("tls") == nullptr);
    if (!tests && closing == nullptr) closing = &route;
  }
}

void check_servers(const std::vector<Server>& servers, Mark mark, Diagnostics& diagnostics) {
  const auto all = [&](auto unusable) {
    return !servers.empty() && std::all_of(servers.begin(), servers.end(), unusable);
  };
  if (all([](const Server& s) { return s.down; })) {
    diagnostics.error(mark, "every server of this backend is down");
  } else if (all([](const Server& s) { return s.down || s.backup; })) {
    diagnostics.error(mark, "this backend has no server that is neither backup nor down");
  }
}

// A unix socket has no name of its own that a certificate could prove.
void check_server_names(FieldReader& reader, const Backend& backend) {
  if (!backend.tls || !backend.tls->verify || !backend.tls->server_name.value.empty()) return;
  for (const Server& server : backend.servers) {
    const auto* address = std::get_if<os::SocketAddress>(&server.at);
    if (address == nullptr || !address->is_unix()) continue;
    reader.error(reader.mark_of("tls"), "tls to the unix socket '" + base::escape(server.text.value, 80) +
                                            "' needs a server_name to verify");
    return;
  }
}

}  // namespace

void ResolverKeys::check(FieldReader& reader, Resolver& resolver) {
  if (resolver.ipv4 || resolver.ipv6) return;
  reader.error(reader.mark_of("ipv4"), "resolver: with ipv4 and ipv6 both off no name has an address");
}

void ServerCertificateKeys::check(FieldReader& reader, Certificate& certificate) {
  if (certificate.self_signed) {
    if (const Entry* file = reader.first_of({"chain", "key", "password_file"})) {
      reader.error(file->mark, "a self-signed certificate is made at start and takes no '" + file->key + "'");
    }
    return;
  }
  if (!reader.has("chain")) reader.error(reader.mark(), "a certificate needs 'chain' or 'self_signed: true'");
  complete_certificate(reader, certificate);
}

void ClientCertificateKeys::check(FieldReader& reader, Certificate& certificate) {
  reader.require("chain");
  complete_certificate(reader, certificate);
}

void ClientAuthKeys::check(FieldReader& reader, ClientAuth& auth) {
  if (auth.mode == ClientAuthMode::none) {
    if (const Entry* unused = reader.first_of({"ca", "crl", "depth"})) {
      reader.warning(unused->mark, "client_auth: '" + unused->key + "' has no effect while mode is none");
    }
  } else if (auth.ca.value.empty() && !reader.has("ca")) {
    reader.error(reader.mark_of("mode"), "client_auth: without 'ca' no client certificate can be verified");
  }
  if (!auth.crl.empty() && auth.ca.value.empty() && !reader.has("ca")) {
    reader.error(reader.mark_of("crl"), "client_auth: 'crl' needs 'ca'");
  }
}

void HostKeys::check(FieldReader& reader, HostPolicy& host) {
  reader.require("sni");
  check_versions(reader, host.policy.min_version, host.policy.max_version);
}

void ServerTlsKeys::check(FieldReader& reader, ServerTls& tls) {
  if (!reader.has("certificates")) {
    reader.error(reader.mark(), "tls: a listener that terminates TLS needs 'certificates'");
  }
  check_versions(reader, tls.policy.min_version, tls.policy.max_version);
  std::map<std::string, Mark> places;
  for (const HostPolicy& host : tls.hosts) {
    for (const Text& name : host.sni) {
      if (name.value.empty()) continue;
      const auto [known, fresh] = places.emplace(name.value, name.mark);
      if (fresh) continue;
      reader.error(name.mark,
                   "hosts: '" + name.value + "' is given twice; first at " + place_text(known->second));
    }
  }
}

void ClientTlsKeys::check(FieldReader& reader, ClientTls& tls) {
  check_versions(reader, tls.min_version, tls.max_version);
  if (tls.server_name.value.starts_with('*')) {
    reader.error(reader.mark_of("server_name"), "server_name: one name is expected, not a pattern");
  }
  const Entry* unused = reader.first_of({"ca", "crl", "depth"});
  if (!tls.verify && unused != nullptr) {
    reader.warning(unused->mark, "tls: '" + unused->key + "' has no effect while verify is off");
  }
}

void ListenerKeys::check(FieldReader& reader, Listener& listener) {
  reader.require("name");
  reader.require("bind");
  check_exactly_one_target(reader);
  check_routes(reader, listener);
}

void BackendKeys::check(FieldReader& reader, Backend& backend) {
  const int given = static_cast<int>(reader.has("servers")) + static_cast<int>(reader.has("respond")) +
                    static_cast<int>(reader.has("echo"));
  if (given != 1) {
    reader.error(backend.mark, "a backend has exactly one of 'servers', 'respond' and 'echo'");
    return;
  }
  if (!reader.has("servers")) {
    for (const std::string_view key : {"tls", "tries"}) {
      const Entry* entry = reader.first_of({key});
      if (entry != nullptr) reader.error(entry->mark, "'" + entry->key + "' is for backends with servers");
    }
  }
  check_server_names(reader, backend);
}

// --- single values --------------------------------------------------------------------------------

void Workers::read(const Item& item, std::uint32_t& value) {
  if (item.node.kind == Node::Kind::scalar && item.node.text == "auto") {
    value = 0;
    return;
  }
  Number<std::uint32_t, 1, kMostWorkers>::read(item, value);
}

std::optional<Node> Workers::write(std::uint32_t value) {
  return Node::plain(value == 0 ? "auto" : std::to_string(value));
}

void DurationOrNever::read(const Item& item, std::optional<Milliseconds>& value) {
  if (item.node.kind == Node::Kind::scalar && item.node.text == "never") {
    value.reset();
    return;
  }
  Duration::read(item, value.emplace());
}

std::optional<Node> DurationOrNever::write(const std::optional<Milliseconds>& value) {
  return value ? Duration::write(*value) : Node::plain("never");
}

std::optional<Node> DurationOrUnset::write(Milliseconds value) {
  return value.count() == 0 ? std::nullopt : Duration::write(value);
}

std::optional<Node> FlagIfSet::write(bool value) {
  return value ? Flag::write(value) : std::nullopt;
}

void OwnName::read(const Item& item, std::string& value) {
  const std::string* text = item.scalar("a name");
  if (text == nullptr) return;
  if (const auto sound = check_name(*text); !sound) return item.error(sound.error().message);
  value = *text;
}

std::optional<Node> OwnName::write(const std::string& value) {
  return Node::string(value);
}

void NameServer::read(const Item& item, os::SocketAddress& value) {
  const std::string* text = item.scalar("a numeric address");
  if (text == nullptr) return;
  const auto address = parse_name_server(*text);
  if (!address) return item.error(address.error().message);
  value = *address;
}

std::optional<Node> NameServer::write(const os::SocketAddress& value) {
  return Node::string(value.to_string());
}

void NamePattern::read(const Item& item, Text& value) {
  const std::string* text = item.scalar("a host name");
  if (text == nullptr) return;
  const auto name = parse_name_pattern(*text);
  if (!name) return item.error(name.error().message);
  value = Text{*name, item.node.mark};
}

std::optional<Node> NamePattern::write(const Text& value) {
  return Line::write(value);
}

void AlpnName::read(const Item& item, Text& value) {
  Text name;
  Line::read(item, name);
  if (name.value.empty()) return;
  if (const auto sound = check_alpn(name.value); !sound) return item.error(sound.error().message);
  value = std::move(name);
}

std::optional<Node> AlpnName::write(const Text& value) {
  return Line::write(value);
}

void AlpnList::read(const Item& item, std::vector<Text>& values) {
  // RFC 7301, 3.1: the list is a vector of at most 65535 bytes, each name with one byte for its length.
  constexpr std::size_t kLongestList = 65535;
  OneOrMore<AlpnName, Empty::allowed>::read(item, values);
  std::size_t bytes = 0;
  std::map<std::string, Mark> places;
  for (const Text& name : values) {
    bytes += 1 + name.value.size();
    const auto [known, fresh] = places.emplace(name.value, name.mark);
    if (fresh || name.value.empty()) continue;
    item.error_at(name.mark, "'" + base::escape(name.value, 80) + "' is given twice; first at " +
                                 place_text(known->second));
  }
  if (bytes > kLongestList)
    item.error("the list is longer than the 65535 bytes a handshake message can hold");
}

void SourceNetwork::read(const Item& item, os::Network& value) {
  const std::string* text = item.scalar("a network");
  if (text == nullptr) return;
  const auto network = os::Network::parse(*text);
  if (!network) return item.error(base::escape(network.error().message));
  value = *network;
}

std::optional<Node> SourceNetwork::write(const os::Network& value) {
  return Node::string(value.to_string());
}

// --- TLS ------------------------------------------------------------------------------------------

std::optional<Node> ClientAuthMap::write(const ClientAuth& auth) {
  if (auth.mode != ClientAuthMode::none) return Map<ClientAuthKeys>::write(auth);
  Node map = Node::map();
  map.entries.push_back(Entry{"mode", Mark{}, Node::plain("none")});
  return map;
}

void Hosts::read(const Item& item, ServerTls& tls) {
  if (!item.is(Node::Kind::sequence, "a list of maps")) return;
  if (item.node.items.empty()) item.error("the list is empty");
  for (const Node& node : item.node.items) {
    const TlsPolicy& policy = tls.policy;
    item.reading.copied += policy.certificates.size() + policy.alpn.size() + policy.client_auth.crl.size();
    if (item.reading.copied > kMostCopied) {
      return item.with(node).error("more than " + std::to_string(kMostCopied) + " inherited values by here");
    }
    HostPolicy& host = tls.hosts.emplace_back();
    host.policy = policy;
    Map<HostKeys>::read(item.with(node), host);
  }
}

std::optional<Node> Hosts::write(const ServerTls& tls) {
  return Sequence<Map<HostKeys>>::write(tls.hosts);
}

void ListenerTls::read(const Item& item, Listener& listener) {
  if (item.node.kind == Node::Kind::map) {
    listener.tls_mode = TlsMode::terminate;
    Map<ServerTlsKeys>::read(item, listener.tls);
    return;
  }
  // Set even after an error, so that routes by SNI are not blamed as well.
  listener.tls_mode = TlsMode::passthrough;
  const std::string* text = item.scalar("'passthrough' or a map of keys");
  if (text == nullptr || *text == "passthrough") return;
  item.error("'" + base::escape(*text, 64) +
             "' is neither 'passthrough' nor a map of keys; a listener without tls "
             "leaves the key out");
}

std::optional<Node> ListenerTls::write(const Listener& listener) {
  if (listener.tls_mode == TlsMode::none) return std::nullopt;
  if (listener.tls_mode == TlsMode::passthrough) return Node::plain("passthrough");
  return Map<ServerTlsKeys>::write(listener.tls);
}

// --- listeners ------------------------------------------------------------------------------------

void BindAddress::read(const Item& item, Bind& bind) {
  Line::read(item, bind.text);
}
std::optional<Node> BindAddress::write(const Bind& bind) {
  return Node::string(bind_text(bind));
}

void Backlog::read(const Item& item, Bind& bind) {
  Number<int, 1, 65535>::read(item, bind.backlog);
}
std::optional<Node> Backlog::write(const Bind& bind) {
  if (!bind.systemd_name.empty()) return std::nullopt;
  return Number<int, 1, 65535>::write(bind.backlog);
}

void V6Only::read(const Item& item, Bind& bind) {
  Flag::read(item, bind.v6only);
}
std::optional<Node> V6Only::write(const Bind& bind) {
  return bind.address.family() == AF_INET6 ? Flag::write(bind.v6only) : std::nullopt;
}

namespace {

void read_bind(const Item& item, std::vector<Bind>& binds) {
  Bind common;
  if (item.node.kind == Node::Kind::map) {
    Map<BindKeys>::read(item, common);
  } else {
    BindAddress::read(item, common);
  }
  if (common.text.value.empty()) return;
  const auto parsed = parse_bind(common.text.value);
  if (!parsed) return item.error_at(common.text.mark, parsed.error().message);
  const Entry* backlog = item.node.find("backlog");
  const Entry* v6only = item.node.find("v6only");
  if (backlog != nullptr && !parsed->front().systemd_name.empty()) {
    item.error_at(backlog->mark, "the socket unit sets the backlog of a socket from systemd (Backlog=)");
  }
  if (v6only != nullptr && parsed->front().address.family() != AF_INET6) {
    item.error_at(v6only->mark, "v6only is for IPv6 addresses");
  }
  item.reading.binds += parsed->size();
  if (item.reading.binds > kMostBinds) {
    return item.error("more than " + std::to_string(kMostBinds) + " addresses to listen on by here");
  }
  for (const Bind& one : *parsed) {
    Bind& bind = binds.emplace_back(common);
    bind.address = one.address;
    bind.systemd_name = one.systemd_name;
  }
}

}  // namespace

void Binds::read(const Item& item, std::vector<Bind>& binds) {
  binds.clear();
  if (item.node.kind != Node::Kind::sequence) return read_bind(item, binds);
  if (item.node.items.empty()) item.error("the list is empty");
  for (const Node& node : item.node.items) read_bind(item.with(node), binds);
}

std::optional<Node> Binds::write(const std::vector<Bind>& binds) {
  return Sequence<Map<BindKeys>>::write(binds);
}

void OnlyRoute::read(const Item& item, Listener& listener) {
  Route route;
  route.mark = item.node.mark;
  Line::read(item, route.to);
  listener.routes.push_back(std::move(route));
}

void Listeners::read(const Item& item, std::vector<Listener>& listeners) {
  Sequence<Map<ListenerKeys>>::read(item, listeners);
  std::map<std::string, Mark> places;
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    if (listeners[i].name.empty()) continue;
    const Mark mark = item.node.items[i].find("name")->value.mark;
    const auto [known, fresh] = places.emplace(listeners[i].name, mark);
    if (fresh) continue;
    item.error_at(mark,
                  "the name '" + listeners[i].name + "' is taken; first at " + place_text(known->second));
  }
}

// --- backends -------------------------------------------------------------------------------------

void ServerAddress::read(const Item& item, Server& server) {
  const std::string* text = item.scalar("an address with a port");
  if (text == nullptr) return;
  const auto at = parse_server(*text);
  if (!at) return item.error(at.error().message);
  server.text = Text{*text, item.node.mark};
  server.at = *at;
}

std::optional<Node> ServerAddress::write(const Server& server) {
  return Node::string(server.text.value);
}

void ServerItem::read(const Item& item, Server& server) {
  if (item.node.kind == Node::Kind::map) return Map<ServerKeys>::read(item, server);
  ServerAddress::read(item, server);
}

void RespondText::read(const Item& item, Backend& backend) {
  backend.kind = BackendKind::respond;
  if (const std::string* text = item.scalar("a text")) backend.respond = *text;
}

std::optional<Node> RespondText::write(const Backend& backend) {
  if (backend.kind != BackendKind::respond) return std::nullopt;
  return Node::string(backend.respond);
}

void Echo::read(const Item& item, Backend& backend) {
  backend.kind = BackendKind::echo;
  bool echo = true;
  Flag::read(item, echo);
  if (!echo) item.error("can only be true; a backend without echo leaves the key out");
}

std::optional<Node> Echo::write(const Backend& backend) {
  return backend.kind == BackendKind::echo ? Flag::write(true) : std::nullopt;
}

void Tries::read(const Item& item, Backend& backend) {
  Number<std::uint32_t, 0, kMostTries>::read(item, backend.tries);
}

std::optional<Node> Tries::write(const Backend& backend) {
  if (backend.kind != BackendKind::servers) return std::nullopt;
  return Number<std::uint32_t, 0, kMostTries>::write(backend.tries);
}

void BackendTls::read(const Item& item, std::optional<ClientTls>& tls) {
  if (item.node.kind == Node::Kind::map) return Map<ClientTlsKeys>::read(item, tls.emplace());
  bool wanted = false;
  Flag::read(item, wanted);
  if (!wanted) return;
  tls.emplace().mark = item.node.mark;
}

void Backends::read(const Item& item, std::vector<Backend>& backends) {
  if (!item.is(Node::Kind::map, "a map from names to backends")) return;
  for (const Entry& entry : item.node.entries) {
    Backend& backend = backends.emplace_back();
    backend.name = entry.key;
    if (const auto sound = check_name(entry.key); !sound) item.error_at(entry.mark, sound.error().message);
    const Item value{entry.value, entry.key, item.reading};
    if (entry.value.kind == Node::Kind::map) {
      Map<BackendKeys>::read(value, backend);
    } else {
      OneOrMore<ServerItem>::read(value, backend.servers);
    }
    backend.mark = entry.mark;
    check_servers(backend.servers, entry.mark, item.reading.diagnostics);
  }
}

std::optional<Node> Backends::write(const std::vector<Backend>& backends) {
  Node map = Node::map();
  for (const Backend& backend : backends) {
    map.entries.push_back(Entry{backend.name, Mark{}, Map<BackendKeys>::write(backend).value()});
  }
  return map;
}

}  // namespace tlsproxy::config
