#include "loop/timer.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace tlsproxy::loop {

void Timer::bind_raw(TimerWheel& wheel, void (*callback)(void*), void* owner) {
  TLSPROXY_CHECK(callback_ == nullptr, "a timer has one owner");
  wheel_ = &wheel;
  callback_ = callback;
  owner_ = owner;
}

void Timer::arm(Duration delay) {
  TLSPROXY_CHECK(callback_ != nullptr, "a timer knows what to call before it is armed");
  const TimePoint now = wheel_->now();
  // The sum stays within what a TimePoint can say.
  const auto longest = std::chrono::floor<Duration>(TimePoint::max() - now);
  wheel_->arm(*this, now + std::clamp(delay, Duration::zero(), longest));
}

void Timer::arm_at(TimePoint deadline) {
  TLSPROXY_CHECK(callback_ != nullptr, "a timer knows what to call before it is armed");
  wheel_->arm(*this, deadline);
}

void Timer::cancel() {
  if (armed()) wheel_->cancel(*this);
}

}  // namespace tlsproxy::loop
