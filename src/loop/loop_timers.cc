#include "loop/loop_timers.h"

#include <algorithm>
#include <chrono>

namespace tlsproxy::loop {

LoopTimers::LoopTimers(Loop& loop) : loop_(&loop), wheel_(*this) {
  event_assign(
      &alarm_, loop.base(), -1, 0,
      [](evutil_socket_t, short, void* wheel) { static_cast<TimerWheel*>(wheel)->expire(); }, &wheel_);
}

LoopTimers::~LoopTimers() {
  event_del(&alarm_);
}

void LoopTimers::wake_at(TimePoint when) {
  using std::chrono::microseconds;
  // Rounded up: an alarm before its time would only have to be set again.
  const auto wait = std::max(std::chrono::ceil<microseconds>(when - loop_->now()), microseconds::zero());
  timeval left{};
  left.tv_sec = static_cast<time_t>(wait.count() / 1'000'000);
  left.tv_usec = static_cast<suseconds_t>(wait.count() % 1'000'000);
  event_add(&alarm_, &left);
}

}  // namespace tlsproxy::loop
