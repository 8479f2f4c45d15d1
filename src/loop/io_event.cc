#include "loop/io_event.h"

#include "base/check.h"

namespace tlsproxy::loop {

void IoEvent::start_raw(Loop& loop, int fd, Trigger trigger, event_callback_fn callback, void* owner) {
  TLSPROXY_CHECK(!started_, "a descriptor is registered once");
  const short what = trigger == Trigger::edge_both
                         ? static_cast<short>(EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST)
                         : static_cast<short>(EV_READ | EV_PERSIST);
  event_assign(&event_, loop.base(), fd, what, callback, owner);
  TLSPROXY_CHECK(event_add(&event_, nullptr) == 0, "the kernel watches every open descriptor");
  started_ = true;
}

void IoEvent::stop() {
  if (!started_) return;
  event_del(&event_);
  started_ = false;
}

}  // namespace tlsproxy::loop
