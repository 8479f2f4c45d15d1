#include "loop/io_event.h"

#include "base/check.h"

namespace tlsproxy::loop {
namespace {

short events_of(IoEvent::Trigger trigger) {
  switch (trigger) {
    case IoEvent::Trigger::edge_both:
      return static_cast<short>(EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST);
    case IoEvent::Trigger::level_read:
      return static_cast<short>(EV_READ | EV_PERSIST);
    case IoEvent::Trigger::level_both:
      return static_cast<short>(EV_READ | EV_WRITE | EV_PERSIST);
  }
  return 0;
}

}  // namespace

void IoEvent::start_raw(Loop& loop, int fd, Trigger trigger, event_callback_fn callback, void* owner) {
  TLSPROXY_CHECK(!started(), "a descriptor is registered once");
  event_assign(&event_, loop.base(), fd, events_of(trigger), callback, owner);
  TLSPROXY_CHECK(event_add(&event_, nullptr) == 0, "the kernel watches every open descriptor");
}

void IoEvent::stop() {
  if (!started()) return;
  event_del(&event_);
  event_ = {};
}

}  // namespace tlsproxy::loop
