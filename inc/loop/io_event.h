// IoEvent: the registration of one descriptor with the loop, for its whole life.
//
// Edge-triggered: registered once for both directions and for the peer's end of stream, never changed;
// whoever wants to pause ignores the news and remembers it. Level-triggered: for listening sockets,
// channels and the sockets of libraries that expect it, where start() and stop() may alternate.
#pragma once

#include <event2/event.h>
#include <event2/event_struct.h>

#include "loop/loop.h"

namespace tlsproxy::loop {

struct IoNews {
  bool readable = false;
  bool writable = false;
  bool hangup = false;  // the peer ended its direction (EPOLLRDHUP), which comes without a second edge
};

class IoEvent {
 public:
  enum class Trigger { edge_both, level_read, level_both };

  IoEvent() = default;
  ~IoEvent() { stop(); }
  IoEvent(const IoEvent&) = delete;
  IoEvent& operator=(const IoEvent&) = delete;

  // Calls (owner.*Method)(IoNews) from the loop until stop(). `owner` and `fd` must outlive that.
  template <auto Method, class Owner>
  void start(Loop& loop, int fd, Trigger trigger, Owner& owner) {
    start_raw(
        loop, fd, trigger,
        [](evutil_socket_t, short what, void* owner_ptr) {
          (static_cast<Owner*>(owner_ptr)->*Method)(to_news(what));
        },
        &owner);
  }

  // No effect when not started. Must come before the descriptor is closed.
  void stop();

  [[nodiscard]] bool started() const { return event_initialized(&event_) != 0; }

 private:
  void start_raw(Loop& loop, int fd, Trigger trigger, event_callback_fn callback, void* owner);
  static IoNews to_news(short what) {
    return IoNews{(what & EV_READ) != 0, (what & EV_WRITE) != 0, (what & EV_CLOSED) != 0};
  }

  event event_{};  // all zero while not started
};
static_assert(sizeof(IoEvent) == sizeof(event), "every session holds two");

}  // namespace tlsproxy::loop
