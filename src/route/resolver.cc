#include "route/resolver.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "log/log.h"
#include "loop/timer.h"
#include "route/lookup.h"

namespace tlsproxy::route {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kLeastTtl = 1s;
constexpr std::chrono::seconds kMostTtl = 1h;
constexpr std::chrono::seconds kHostsFileAge = 30s;  // it has no TTL: so soon an edit is followed
constexpr std::chrono::seconds kFirstPause = 1s;
constexpr std::chrono::seconds kLongestPause = 30s;

std::string listed(const std::vector<os::SocketAddress>& addresses) {
  std::string text;
  for (const os::SocketAddress& address : addresses) text += (text.empty() ? "" : ", ") + address.host();
  return text;
}

bool same_set(const std::vector<os::SocketAddress>& a, const std::vector<os::SocketAddress>& b) {
  return std::is_permutation(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

class Resolver::Impl {
 public:
  Impl(loop::Loop& loop, const config::Resolver& config) : loop_(loop), config_(config) {}

  void watch(Cluster& cluster);
  void start(std::function<void()> when_settled);

 private:
  class Name;

  Name& name(const std::string& host);
  void settled_one();

  loop::Loop& loop_;
  const config::Resolver& config_;
  std::vector<std::unique_ptr<Name>> names_;
  std::size_t unsettled_ = 0;
  std::function<void()> when_settled_;
};

// One host name: its last good addresses, who uses them, and when it is looked up again.
class Resolver::Impl::Name final : public Lookup {
 public:
  Name(Impl& resolver, std::string host)
      : Lookup(resolver.loop_, resolver.config_, std::move(host)), resolver_(resolver) {
    next_.bind<&Name::start>(resolver.loop_, *this);
  }

  void used_by(Cluster& cluster, const config::Server& server, std::uint16_t port) {
    users_.push_back({&cluster, &server, port});
  }

 private:
  struct User {
    Cluster* cluster;
    const config::Server* server;
    std::uint16_t port;
  };

  void finished(LookupOutcome outcome) override;
  void resolved(LookupOutcome outcome);
  void failed(const std::string& why);

  Impl& resolver_;
  std::vector<User> users_;
  std::vector<os::SocketAddress> addresses_;  // with port 0
  bool settled_ = false;
  bool failing_ = false;
  std::chrono::seconds pause_ = kFirstPause;  // after the next failure
  loop::Timer next_;
};

void Resolver::Impl::Name::finished(LookupOutcome outcome) {
  if (outcome.addresses.empty()) {
    failed(outcome.failure);
  } else {
    resolved(std::move(outcome));
  }
  if (!std::exchange(settled_, true)) resolver_.settled_one();
}

void Resolver::Impl::Name::resolved(LookupOutcome outcome) {
  const config::Resolver& config = resolver_.config_;
  loop::Duration age = outcome.from_hosts ? kHostsFileAge : std::clamp(outcome.ttl, kLeastTtl, kMostTtl);
  if (config.valid.count() > 0) age = config.valid;
  next_.arm(age);

  const bool changed = !same_set(outcome.addresses, addresses_);
  if (failing_ || (changed && !addresses_.empty())) {
    log::info("resolver: {} {} to {}", host(), failing_ ? "resolves again" : "now resolves",
              listed(outcome.addresses));
  } else if (changed) {
    log::debug("resolver: {} resolves to {}", host(), listed(outcome.addresses));
  }
  failing_ = false;
  pause_ = kFirstPause;
  if (!changed) return;
  addresses_ = std::move(outcome.addresses);
  for (const User& user : users_) {
    std::vector<os::SocketAddress> with_port = addresses_;
    for (os::SocketAddress& address : with_port) address.set_port(user.port);
    user.cluster->resolved(*user.server, with_port);
  }
}

void Resolver::Impl::Name::failed(const std::string& why) {
  next_.arm(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
  if (std::exchange(failing_, true)) return;
  if (addresses_.empty()) {
    log::warn("resolver: {} does not resolve: {}; its servers are left out", host(), why);
  } else {
    log::warn("resolver: {} no longer resolves: {}; still using {}", host(), why, listed(addresses_));
  }
}

void Resolver::Impl::watch(Cluster& cluster) {
  for (const config::Server& server : cluster.backend().servers) {
    if (const auto* at = std::get_if<config::HostPort>(&server.at)) {
      name(base::to_lower(at->host)).used_by(cluster, server, at->port);
    }
  }
}

Resolver::Impl::Name& Resolver::Impl::name(const std::string& host) {
  const auto found =
      std::find_if(names_.begin(), names_.end(), [&](const auto& name) { return name->host() == host; });
  if (found != names_.end()) return **found;
  names_.push_back(std::make_unique<Name>(*this, host));
  return *names_.back();
}

void Resolver::Impl::start(std::function<void()> when_settled) {
  when_settled_ = std::move(when_settled);
  unsettled_ = names_.size() + 1;  // one for this function, so that it ends before anybody is called
  for (const auto& name : names_) name->start();
  settled_one();
}

void Resolver::Impl::settled_one() {
  if (--unsettled_ > 0) return;
  // The callee may destroy the resolver: nothing is touched after the call.
  const auto settled = std::exchange(when_settled_, nullptr);
  if (settled) settled();
}

Resolver::Resolver(loop::Loop& loop, const config::Resolver& config)
    : impl_(std::make_unique<Impl>(loop, config)) {}

Resolver::~Resolver() = default;

void Resolver::watch(Cluster& cluster) {
  impl_->watch(cluster);
}

void Resolver::start(std::function<void()> when_settled) {
  impl_->start(std::move(when_settled));
}

}  // namespace tlsproxy::route
