// The clock of the loop: steady, read once per turn.
#pragma once

#include <chrono>

namespace tlsproxy::loop {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = std::chrono::milliseconds;

}  // namespace tlsproxy::loop
