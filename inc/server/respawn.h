// RespawnBackoff: how long the place of a dead worker stays empty.
//
// A worker that lived is replaced at once. One that dies young dies of something that will likely kill
// its successor too: each such death in a row doubles the pause, so that a crash at start does not eat
// the machine. One object per place; other workers are not concerned.
#pragma once

#include <chrono>

namespace tlsproxy::server {

class RespawnBackoff {
 public:
  using Duration = std::chrono::milliseconds;
  static constexpr Duration kYoung{5000};
  static constexpr Duration kFirst{100};
  static constexpr Duration kLongest{30000};

  // The worker of this place died after `lived`: the pause before the next is born.
  Duration died(Duration lived);

 private:
  Duration next_ = kFirst;
};

}  // namespace tlsproxy::server
