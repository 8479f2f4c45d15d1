// Cluster: the servers of one backend as one worker sees them, and whose turn it is.
//
// A server with several addresses is several endpoints, each with the server's weight, as nginx has it.
// Smooth weighted round robin (the one nginx uses: each pick adds every weight to its endpoint's credit,
// takes the largest and charges it the sum). An endpoint with max_fails failures within fail_timeout is
// benched for fail_timeout; then one session tries it again. When every endpoint is benched, all are
// taken back, since a guess is better than a refusal. Backups serve only while no primary is available.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/model.h"
#include "os/address.h"

namespace tlsproxy::route {

using TimePoint = std::chrono::steady_clock::time_point;

struct Endpoint {
  os::SocketAddress address;
  const config::Server* server = nullptr;

  // Balancing and passive health; Cluster's own.
  std::int64_t credit = 0;
  std::uint32_t fails = 0;
  TimePoint first_fail{};
  TimePoint benched_until{};
};

// Sessions hold endpoints by shared ownership: a name that resolves anew replaces the cluster's, while
// whoever is connected keeps the old.
using EndpointPtr = std::shared_ptr<Endpoint>;

class Cluster {
 public:
  // `backend` (of kind servers) must outlive the cluster. Numeric and unix addresses are endpoints at
  // once; names are when resolved() brought theirs.
  explicit Cluster(const config::Backend& backend);

  [[nodiscard]] const config::Backend& backend() const { return *backend_; }

  // The next endpoint to try that is not in `tried`, or null when none is left.
  EndpointPtr pick(std::span<const EndpointPtr> tried, TimePoint now);

  void succeeded(Endpoint& endpoint);
  void failed(Endpoint& endpoint, TimePoint now);

  // The addresses of `server` (one of backend().servers given by name) are now these. Endpoints that
  // stay keep their credit and health. An empty list is ignored: the last good addresses serve on.
  void resolved(const config::Server& server, std::span<const os::SocketAddress> addresses);

  [[nodiscard]] const std::vector<EndpointPtr>& endpoints() const { return endpoints_; }

 private:
  const config::Backend* backend_;
  std::vector<EndpointPtr> endpoints_;  // in the order of the configuration
};

}  // namespace tlsproxy::route
