// LoopTimers: the timers of a loop: a wheel, and the one timer of libevent's that drives it.
#pragma once

#include <event2/event.h>
#include <event2/event_struct.h>

#include "loop/loop.h"
#include "loop/timer_wheel.h"

namespace tlsproxy::loop {

class LoopTimers final : private TimerWheel::Driver {
 public:
  // `loop` has its event base, which must outlive this.
  explicit LoopTimers(Loop& loop);
  ~LoopTimers();
  LoopTimers(const LoopTimers&) = delete;
  LoopTimers& operator=(const LoopTimers&) = delete;

  [[nodiscard]] TimerWheel& wheel() { return wheel_; }

 private:
  TimePoint now() override { return loop_->now(); }
  void wake_at(TimePoint when) override;

  Loop* loop_;
  event alarm_{};
  TimerWheel wheel_;
};

}  // namespace tlsproxy::loop
