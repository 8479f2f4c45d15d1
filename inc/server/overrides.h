// Overrides: ways of the data path that the environment forces, so that each can be tried on any traffic.
// They are for tests and experiments; tlsproxy(8) has them under ENVIRONMENT.
#pragma once

#include "base/result.h"
#include "buffer/block_pool.h"
#include "relay/flow.h"

namespace tlsproxy::server {

struct Overrides {
  // TLSPROXY_BLOCKS: "64,512,65536", bytes per block of each size, growing, the largest at most 65536.
  buffer::BlockPool::Capacities blocks = buffer::BlockPool::kCapacities;
  // TLSPROXY_SPLICE: "always" or "never" instead of under bulk load.
  relay::SpliceWhen splice = relay::SpliceWhen::bulk;

  // The error names the variable and what it should be.
  static base::Result<Overrides> from_environment();
};

}  // namespace tlsproxy::server
