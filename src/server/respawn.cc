#include "server/respawn.h"

#include <algorithm>

namespace tlsproxy::server {

RespawnBackoff::Duration RespawnBackoff::died(Duration lived) {
  if (lived >= kYoung) {
    next_ = kFirst;
    return Duration::zero();
  }
  const Duration pause = next_;
  next_ = std::min(2 * next_, kLongest);
  return pause;
}

}  // namespace tlsproxy::server
