// Timer: calls its owner once, some time after arm().
//
// Arming and cancelling are a few writes (see TimerWheel), without system call or allocation. Traffic
// should still write a timestamp and let the expiry compute what is left, instead of re-arming at every
// byte.
#pragma once

#include <cstdint>

#include "base/intrusive_list.h"
#include "loop/clock.h"
#include "loop/loop.h"
#include "loop/timer_wheel.h"

namespace tlsproxy::loop {

class Timer : private base::Hook<TimerTag> {
 public:
  Timer() = default;
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Says what expiry calls: (owner.*Method)(). Once, before the first arm().
  template <auto Method, class Owner>
  void bind(TimerWheel& wheel, Owner& owner) {
    bind_raw(
        wheel, [](void* owner_ptr) { (static_cast<Owner*>(owner_ptr)->*Method)(); }, &owner);
  }
  template <auto Method, class Owner>
  void bind(Loop& loop, Owner& owner) {
    bind<Method>(loop.timers(), owner);
  }

  // Expires `delay` after the loop's now() (a negative one counts as 0), replacing what was armed before:
  // never earlier, and about a millisecond later at most, while turns are short.
  void arm(Duration delay);
  // The same at a point in time; one that has passed counts as now.
  void arm_at(TimePoint deadline);
  void cancel();
  [[nodiscard]] bool armed() const { return linked(); }

 private:
  friend class TimerWheel;
  friend class base::IntrusiveList<Timer, TimerTag>;

  void bind_raw(TimerWheel& wheel, void (*callback)(void*), void* owner);

  TimerWheel* wheel_ = nullptr;
  std::uint64_t tick_ = 0;  // the wheel's, while armed
  void (*callback_)(void*) = nullptr;
  void* owner_ = nullptr;
};
static_assert(sizeof(Timer) <= 48, "every session holds one");

}  // namespace tlsproxy::loop
