// Loop: one turn after the other, and what each turn does.
//
//   turn():  1. wait for events (not at all while the ready list has entries) and call their owners
//            2. run the ready list: whoever stopped because its budget was spent
//            3. destroy the retired, which no event of this turn can name any more
//
// One thread. Everything that is called back from here may schedule, cancel and retire tasks, but never
// destroys one itself. libevent stays behind this folder: IoEvent and Timer are the only other doors.
#pragma once

#include <memory>
#include <vector>

#include "base/intrusive_list.h"
#include "loop/clock.h"

struct event_base;

namespace tlsproxy::loop {

class LoopTimers;
class TimerWheel;
struct ReadyTag;

// Something that the loop can run from its ready list and destroy at the end of a turn.
class Task : public base::Hook<ReadyTag> {
 public:
  virtual ~Task() = default;
  virtual void run_ready() = 0;
  [[nodiscard]] bool scheduled() const { return linked(); }
};

class Loop {
 public:
  Loop();  // aborts when the kernel gives no event queue: there is no program without one
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // The time of this turn: read once, when first asked for after the wait. Between turns it does not stand
  // still: a timer armed then would otherwise count from long ago.
  [[nodiscard]] TimePoint now() {
    if (!clock_fresh_) {
      now_ = Clock::now();
      clock_fresh_ = turning_;
    }
    return now_;
  }

  // Runs `task` in this turn's ready phase, or the next one's when that has begun. Again is no effect.
  void schedule(Task& task);

  // Destroys `task` at the end of the turn; it is off the ready list from now on.
  void retire(std::unique_ptr<Task> task);

  // Destroys the retired now. turn() ends with it; otherwise for an owner about to go, whose tasks name it.
  void destroy_retired();

  void turn();

  // Turns until stop() is called.
  void run();
  void stop() { stopped_ = true; }

  // For Timer and IoEvent.
  [[nodiscard]] TimerWheel& timers();
  [[nodiscard]] event_base* base() const { return base_; }

 private:
  event_base* base_;
  TimePoint now_{};
  bool clock_fresh_ = false;
  bool turning_ = false;
  std::unique_ptr<LoopTimers> timers_;
  base::IntrusiveList<Task, ReadyTag> ready_;
  std::vector<std::unique_ptr<Task>> retired_;
  bool stopped_ = false;
};

}  // namespace tlsproxy::loop
