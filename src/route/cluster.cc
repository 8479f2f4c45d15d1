#include "route/cluster.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace tlsproxy::route {
namespace {

using Endpoints = std::vector<EndpointPtr>;

// Benched before and not proven since: it serves one session at a time until that one succeeds.
bool on_trial(const Endpoint& endpoint) {
  return endpoint.server->max_fails > 0 && endpoint.fails >= endpoint.server->max_fails;
}

bool benched(const Endpoint& endpoint, TimePoint now) {
  return now < endpoint.benched_until;
}

bool contains(std::span<const EndpointPtr> endpoints, const EndpointPtr& endpoint) {
  return std::find(endpoints.begin(), endpoints.end(), endpoint) != endpoints.end();
}

// One step of smooth weighted round robin among the primaries or the backups that are available.
EndpointPtr next_of(const Endpoints& endpoints, bool backup, std::span<const EndpointPtr> tried,
                    TimePoint now) {
  EndpointPtr best;
  std::int64_t sum = 0;
  for (const EndpointPtr& endpoint : endpoints) {
    const config::Server& server = *endpoint->server;
    if (server.down || server.backup != backup || benched(*endpoint, now) || contains(tried, endpoint))
      continue;
    endpoint->credit += server.weight;
    sum += server.weight;
    if (best == nullptr || endpoint->credit > best->credit) best = endpoint;
  }
  if (best != nullptr) best->credit -= sum;
  return best;
}

EndpointPtr next_of_all(const Endpoints& endpoints, std::span<const EndpointPtr> tried, TimePoint now) {
  EndpointPtr next = next_of(endpoints, false, tried, now);
  return next != nullptr ? next : next_of(endpoints, true, tried, now);
}

}  // namespace

Cluster::Cluster(const config::Backend& backend) : backend_(&backend) {
  TLSPROXY_CHECK(backend.kind == config::BackendKind::servers, "a cluster is made of servers");
  for (const config::Server& server : backend.servers) {
    if (const auto* address = std::get_if<os::SocketAddress>(&server.at)) {
      resolved(server, std::span(address, 1));
    }
  }
}

EndpointPtr Cluster::pick(std::span<const EndpointPtr> tried, TimePoint now) {
  EndpointPtr next = next_of_all(endpoints_, tried, now);
  if (next == nullptr) {
    const bool all_benched = std::all_of(
        endpoints_.begin(), endpoints_.end(),
        [now](const EndpointPtr& endpoint) { return endpoint->server->down || benched(*endpoint, now); });
    if (!all_benched) return nullptr;
    for (const EndpointPtr& endpoint : endpoints_) succeeded(*endpoint);
    next = next_of_all(endpoints_, tried, now);
    if (next == nullptr) return nullptr;
  }
  // Back from the bench: the others wait until this session has found out.
  if (on_trial(*next)) next->benched_until = now + next->server->fail_timeout;
  return next;
}

void Cluster::succeeded(Endpoint& endpoint) {
  // Failures that have not benched it yet go on counting: a server that fails every third time would
  // otherwise never be benched.
  if (!on_trial(endpoint)) return;
  endpoint.fails = 0;
  endpoint.benched_until = {};
}

void Cluster::failed(Endpoint& endpoint, TimePoint now) {
  const config::Server& server = *endpoint.server;
  if (server.max_fails == 0) return;
  if (!on_trial(endpoint)) {
    if (endpoint.fails == 0 || now - endpoint.first_fail > server.fail_timeout) {
      endpoint.fails = 0;
      endpoint.first_fail = now;
    }
    ++endpoint.fails;
  }
  if (on_trial(endpoint)) endpoint.benched_until = now + server.fail_timeout;
}

void Cluster::resolved(const config::Server& server, std::span<const os::SocketAddress> addresses) {
  if (addresses.empty()) return;
  // The endpoints lie in the order of backend().servers, so a server's own are one range.
  const auto begin =
      std::partition_point(endpoints_.begin(), endpoints_.end(),
                           [&](const EndpointPtr& endpoint) { return endpoint->server < &server; });
  const auto end = std::partition_point(
      begin, endpoints_.end(), [&](const EndpointPtr& endpoint) { return endpoint->server == &server; });
  Endpoints now;
  std::copy_if(begin, end, std::back_inserter(now), [&](const EndpointPtr& endpoint) {
    return std::find(addresses.begin(), addresses.end(), endpoint->address) != addresses.end();
  });
  for (const os::SocketAddress& address : addresses) {
    const bool known = std::any_of(now.begin(), now.end(),
                                   [&](const EndpointPtr& endpoint) { return endpoint->address == address; });
    if (known) continue;
    now.push_back(std::make_shared<Endpoint>());
    now.back()->address = address;
    now.back()->server = &server;
  }
  const auto position = endpoints_.erase(begin, end);
  endpoints_.insert(position, now.begin(), now.end());
}

}  // namespace tlsproxy::route
