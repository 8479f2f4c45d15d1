// Generation: one configuration made ready to serve. Sessions hold the one they began with.
//
// Building it is the full check of a configuration: the master builds one to find errors (and to record
// the files it needs), each worker builds its own from the bundle. Nothing in it changes afterwards but
// the balancing and health state of its clusters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/files.h"
#include "config/model.h"
#include "loop/loop.h"
#include "route/cluster.h"
#include "route/resolver.h"
#include "route/router.h"
#include "tls/context.h"

namespace tlsproxy::relay {

// What a route leads to.
struct Upstream {
  const config::Backend* backend = nullptr;
  std::unique_ptr<route::Cluster> cluster;  // of kind servers only
  std::unique_ptr<tls::ClientContext> tls;  // null: plain
};

// One listener's runtime.
struct Service {
  const config::Listener* listener = nullptr;
  std::unique_ptr<tls::ServerContexts> tls;  // null unless it terminates TLS
  route::Router router;
};

class Generation {
 public:
  // Null when an error was reported. `id` counts from 1 and grows with every configuration applied.
  static std::shared_ptr<Generation> make(std::uint64_t id, config::Config config, config::FileSource& files,
                                          config::Diagnostics& diagnostics);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Starts what runs in the background (name resolution); `when_settled` is called once, when sessions
  // can be served, at once if nothing needs waiting for. Not called in the master.
  void start(loop::Loop& loop, std::function<void()> when_settled);

  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] const config::Config& config() const { return config_; }
  // In the order of config().listeners.
  [[nodiscard]] const std::vector<std::unique_ptr<Service>>& services() const { return services_; }
  [[nodiscard]] Upstream& upstream(std::string_view name) const;

 private:
  Generation(std::uint64_t id, config::Config config) : id_(id), config_(std::move(config)) {}

  std::uint64_t id_;
  config::Config config_;
  std::vector<std::unique_ptr<Service>> services_;
  std::map<std::string, std::unique_ptr<Upstream>, std::less<>> upstreams_;
  std::unique_ptr<route::Resolver> resolver_;
};

}  // namespace tlsproxy::relay
