#include "loop/timer.h"

#include <algorithm>

#include "base/check.h"

namespace tlsproxy::loop {

void Timer::bind_raw(Loop& loop, event_callback_fn callback, void* owner) {
  TLSPROXY_CHECK(!bound_, "a timer has one owner");
  event_assign(&event_, loop.base(), -1, 0, callback, owner);
  bound_ = true;
}

void Timer::arm(Duration delay) {
  TLSPROXY_CHECK(bound_, "a timer knows what to call before it is armed");
  const auto left = std::max<Duration::rep>(0, delay.count());
  timeval wait{};
  wait.tv_sec = static_cast<time_t>(left / 1000);
  wait.tv_usec = static_cast<suseconds_t>((left % 1000) * 1000);
  event_add(&event_, &wait);
}

void Timer::cancel() {
  if (bound_) event_del(&event_);
}

bool Timer::armed() const {
  return bound_ && event_pending(&event_, EV_TIMEOUT, nullptr) != 0;
}

}  // namespace tlsproxy::loop
