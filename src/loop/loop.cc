#include "loop/loop.h"

#include <event2/event.h>

#include <utility>

#include "base/check.h"
#include "loop/epoll_report.h"
#include "loop/event_memory.h"
#include "loop/loop_timers.h"

namespace tlsproxy::loop {

Loop::Loop() {
  use_epoll_report();
  keep_event_memory_apart();
  event_config* config = event_config_new();
  TLSPROXY_CHECK(config != nullptr, "libevent has memory for a configuration");
  // Edge triggering and EPOLLRDHUP exist in epoll only. Timers of a millisecond do: precise ones would set
  // a timerfd in every turn, a system call more for each.
  event_config_require_features(config, EV_FEATURE_ET | EV_FEATURE_O1 | EV_FEATURE_EARLY_CLOSE);
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  base_ = event_base_new_with_config(config);
  event_config_free(config);
  TLSPROXY_CHECK(base_ != nullptr, "the kernel gives an epoll queue");
  timers_ = std::make_unique<LoopTimers>(*this);
}

Loop::~Loop() {
  destroy_retired();
  timers_.reset();
  event_base_free(base_);
}

TimerWheel& Loop::timers() {
  return timers_->wheel();
}

void Loop::schedule(Task& task) {
  if (!task.scheduled()) ready_.push_back(task);
}

void Loop::retire(std::unique_ptr<Task> task) {
  task->unlink();
  retired_.push_back(std::move(task));
}

void Loop::destroy_retired() {
  // A destructor may retire others in turn.
  while (!retired_.empty()) {
    const auto dead = std::exchange(retired_, {});
  }
}

void Loop::turn() {
  const int how = EVLOOP_ONCE | (ready_.empty() ? 0 : EVLOOP_NONBLOCK);
  turning_ = true;
  clock_fresh_ = false;
  event_base_loop(base_, how);
  // Only what is there now: a task that schedules itself again waits for the next events first.
  base::IntrusiveList<Task, ReadyTag> batch;
  while (!ready_.empty()) batch.push_back(ready_.pop_front());
  while (!batch.empty()) batch.pop_front().run_ready();
  destroy_retired();
  turning_ = clock_fresh_ = false;
}

void Loop::run() {
  stopped_ = false;
  while (!stopped_) turn();
}

}  // namespace tlsproxy::loop
