// Resolver: keeps the addresses of named servers current, without ever blocking the loop (c-ares).
//
// Each distinct host name is looked up by one query for all servers that name it, again when its answer
// has aged (its TTL, at least 1 s; or `valid` from the configuration), and after a failure with a pause
// that doubles from 1 s to 30 s. A failure keeps the last good addresses and is logged once until it
// changes. /etc/hosts is consulted first, as getaddrinfo does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/model.h"
#include "loop/loop.h"
#include "route/cluster.h"

namespace tlsproxy::route {

class Resolver {
 public:
  // `config` must outlive the resolver.
  Resolver(loop::Loop& loop, const config::Resolver& config);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Adds every named server of `cluster`, which must outlive the resolver. Before start().
  void watch(Cluster& cluster);

  // Starts looking up. `when_settled` is called once, from the loop or from start() itself, when every
  // name has had an answer or a final failure: until then a cluster may have no endpoint for a name.
  void start(std::function<void()> when_settled);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tlsproxy::route
