#include "relay/generation.h"

#include <utility>

#include "base/check.h"

namespace tlsproxy::relay {

std::shared_ptr<Generation> Generation::make(std::uint64_t id, config::Config config,
                                             config::FileSource& files, config::Diagnostics& diagnostics) {
  std::shared_ptr<Generation> generation(new Generation(id, std::move(config)));
  const std::size_t errors_before = diagnostics.errors();
  for (const config::Listener& listener : generation->config_.listeners) {
    auto service = std::make_unique<Service>(Service{&listener, nullptr, route::Router(listener.routes)});
    if (listener.tls_mode == config::TlsMode::terminate) {
      service->tls = tls::ServerContexts::make(listener, files, diagnostics);
    }
    generation->services_.push_back(std::move(service));
  }
  for (const config::Backend& backend : generation->config_.backends) {
    auto upstream = std::make_unique<Upstream>();
    upstream->backend = &backend;
    if (backend.kind == config::BackendKind::servers)
      upstream->cluster = std::make_unique<route::Cluster>(backend);
    if (backend.tls) upstream->tls = tls::ClientContext::make(backend, files, diagnostics);
    generation->upstreams_.emplace(backend.name, std::move(upstream));
  }
  // All of it was built even after the first error, so that one run names every error.
  if (diagnostics.errors() != errors_before) return nullptr;
  return generation;
}

void Generation::start(loop::Loop& loop, std::function<void()> when_settled) {
  resolver_ = std::make_unique<route::Resolver>(loop, config_.resolver);
  for (const auto& [name, upstream] : upstreams_) {
    if (upstream->cluster != nullptr) resolver_->watch(*upstream->cluster);
  }
  resolver_->start(std::move(when_settled));
}

Upstream& Generation::upstream(std::string_view name) const {
  const auto found = upstreams_.find(name);
  TLSPROXY_CHECK(found != upstreams_.end(), "every route leads to a backend: the loader checked");
  return *found->second;
}

}  // namespace tlsproxy::relay
