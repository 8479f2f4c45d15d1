// TimerWheel: which timers are due when, at a cost that does not grow with how many there are.
//
// A hierarchical timing wheel (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987,
// scheme 7) over ticks of 1 ms, counted from its beginning:
//
//   level 0: 64 slots of 1 ms       A timer lies in the level of the highest digit (to the base 64) in which
//   level 1: 64 slots of 64 ms      its deadline differs from the current tick, in the slot of that digit.
//   level 2: 64 slots of 4.1 s      When time reaches a slot above level 0, its timers go to lower levels.
//   ...                             Eight levels hold whatever a TimePoint can say.
//
// So arming and cancelling touch one list, and a timer moves at most once per level in its life; most are
// cancelled or armed anew before. A bit per slot tells which have timers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/intrusive_list.h"
#include "loop/clock.h"

namespace tlsproxy::loop {

class Timer;
struct TimerTag;

class TimerWheel {
 public:
  // What a wheel depends on: the time, which never goes back, and a call of expire() when it asks for one.
  class Driver {
   public:
    virtual TimePoint now() = 0;
    // Asks for expire() at `when`, at once if that is over; replaces what was asked for before.
    virtual void wake_at(TimePoint when) = 0;

   protected:
    ~Driver() = default;
  };

  // `driver` must outlive it; its time now is tick 0. Timers may outlive the wheel, which disarms them.
  explicit TimerWheel(Driver& driver);
  ~TimerWheel();
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  [[nodiscard]] TimePoint now() { return driver_->now(); }

  // `timer` expires at the first whole tick that is not before `deadline`, replacing what was armed before;
  // a deadline that has passed is due at the next expire(). Asks the driver only when nothing earlier is.
  void arm(Timer& timer, TimePoint deadline);

  // No effect when it is not armed.
  void cancel(Timer& timer);

  // Calls every timer that is due, in the order of deadlines (to a tick). Whoever is called may arm, cancel
  // and destroy any timer: one that is armed for now is called by the next expire(), never by this one.
  void expire();

 private:
  using Tick = std::uint64_t;
  using List = base::IntrusiveList<Timer, TimerTag>;

  static constexpr unsigned kDigitBits = 6;
  static constexpr std::size_t kSlots = 1U << kDigitBits;
  static constexpr std::size_t kLevels = 8;  // 2^48 ms; a TimePoint ends at 2^44
  static constexpr Tick kNever = ~Tick{0};

  struct Level {
    std::uint64_t occupied = 0;  // bit i: slots[i] has timers
    std::array<List, kSlots> slots;
  };
  struct Place {
    std::size_t level;
    std::size_t slot;
  };

  [[nodiscard]] Tick first_tick_not_before(TimePoint time) const;
  [[nodiscard]] TimePoint start_of(Tick tick) const;
  [[nodiscard]] Place place_of(Tick tick) const;
  [[nodiscard]] Tick next_slot() const;
  void put(Timer& timer);
  void advance_to(Tick tick);
  void wake_at(Tick tick);

  Driver* driver_;
  TimePoint start_;
  Tick current_ = 0;         // every armed timer has a later tick than this, or is due
  Tick asked_for_ = kNever;  // no armed timer has an earlier tick, between calls of expire()
  bool expiring_ = false;
  List due_;
  std::array<Level, kLevels> levels_;
};

}  // namespace tlsproxy::loop
