// Timer: calls its owner once, some time after arm().
//
// Cheap to leave armed: traffic should write a timestamp and let the expiry compute what is left,
// instead of re-arming at every byte.
#pragma once

#include <event2/event.h>
#include <event2/event_struct.h>

#include "loop/loop.h"

namespace tlsproxy::loop {

class Timer {
 public:
  Timer() = default;
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Says what expiry calls: (owner.*Method)(). Once, before the first arm().
  template <auto Method, class Owner>
  void bind(Loop& loop, Owner& owner) {
    bind_raw(
        loop, [](evutil_socket_t, short, void* owner_ptr) { (static_cast<Owner*>(owner_ptr)->*Method)(); },
        &owner);
  }

  // Expires after `delay` (a negative one counts as 0), replacing what was armed before.
  void arm(Duration delay);
  void cancel();
  [[nodiscard]] bool armed() const;

 private:
  void bind_raw(Loop& loop, event_callback_fn callback, void* owner);

  event event_{};
  bool bound_ = false;
};

}  // namespace tlsproxy::loop
