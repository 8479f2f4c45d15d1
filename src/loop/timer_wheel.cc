#include "loop/timer_wheel.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/check.h"
#include "loop/timer.h"

namespace tlsproxy::loop {

TimerWheel::TimerWheel(Driver& driver) : driver_(&driver), start_(driver.now()) {}

TimerWheel::~TimerWheel() = default;

// --- ticks and places ----------------------------------------------------------------------------

TimerWheel::Tick TimerWheel::first_tick_not_before(TimePoint time) const {
  if (time <= start_) return 0;
  const TimePoint latest = TimePoint::max() - Duration(1);  // rounding up stays within a TimePoint
  return static_cast<Tick>(std::chrono::ceil<Duration>(std::min(time, latest) - start_).count());
}

TimePoint TimerWheel::start_of(Tick tick) const {
  return start_ + Duration(static_cast<Duration::rep>(tick));
}

TimerWheel::Place TimerWheel::place_of(Tick tick) const {
  TLSPROXY_DCHECK(tick > current_, "what is due lies in no slot");
  const auto highest_bit = static_cast<std::size_t>(std::bit_width(tick ^ current_) - 1);
  const std::size_t level = highest_bit / kDigitBits;
  return {level, (tick >> (level * kDigitBits)) % kSlots};
}

// The first tick of the first slot that has timers. All digits above that of its level are those of
// current_, and its own digit is higher; so a lower level comes before a higher one, and no slot wraps.
TimerWheel::Tick TimerWheel::next_slot() const {
  for (std::size_t level = 0; level < kLevels; ++level) {
    if (levels_[level].occupied == 0) continue;
    const auto slot = static_cast<Tick>(std::countr_zero(levels_[level].occupied));
    const std::size_t shift = level * kDigitBits;
    const Tick above = current_ >> (shift + kDigitBits) << (shift + kDigitBits);
    return above | (slot << shift);
  }
  return kNever;
}

// --- arming and cancelling -----------------------------------------------------------------------

void TimerWheel::put(Timer& timer) {
  if (timer.tick_ <= current_) return due_.push_back(timer);
  const Place place = place_of(timer.tick_);
  levels_[place.level].slots[place.slot].push_back(timer);
  levels_[place.level].occupied |= std::uint64_t{1} << place.slot;
}

void TimerWheel::arm(Timer& timer, TimePoint deadline) {
  cancel(timer);
  timer.tick_ = deadline <= now() ? current_ : first_tick_not_before(deadline);
  put(timer);
  // expire() asks for what is next when all are called.
  if (!expiring_ && timer.tick_ < asked_for_) wake_at(timer.tick_);
}

// What was asked for stays: an expire() that finds nothing due costs less than asking anew each time.
void TimerWheel::cancel(Timer& timer) {
  if (!timer.armed()) return;
  timer.unlink();
  if (timer.tick_ <= current_) return;
  const Place place = place_of(timer.tick_);
  if (levels_[place.level].slots[place.slot].empty()) {
    levels_[place.level].occupied &= ~(std::uint64_t{1} << place.slot);
  }
}

void TimerWheel::wake_at(Tick tick) {
  asked_for_ = tick;
  driver_->wake_at(start_of(tick));
}

// --- expiry --------------------------------------------------------------------------------------

// Goes from slot to slot that has timers, so that a long sleep costs no more than they do.
void TimerWheel::advance_to(Tick tick) {
  for (Tick slot = next_slot(); slot <= tick; slot = next_slot()) {
    const Place place = place_of(slot);
    current_ = slot;
    Level& level = levels_[place.level];
    level.occupied &= ~(std::uint64_t{1} << place.slot);
    while (!level.slots[place.slot].empty()) put(level.slots[place.slot].pop_front());
  }
  current_ = std::max(current_, tick);
}

void TimerWheel::expire() {
  asked_for_ = kNever;
  const TimePoint now = driver_->now();
  if (now > start_) advance_to(static_cast<Tick>(std::chrono::floor<Duration>(now - start_).count()));
  List called;
  while (!due_.empty()) called.push_back(due_.pop_front());
  expiring_ = true;
  while (!called.empty()) {
    const Timer& timer = called.pop_front();
    timer.callback_(timer.owner_);  // which may destroy it
  }
  expiring_ = false;
  const Tick next = due_.empty() ? next_slot() : current_;
  if (next != kNever) wake_at(next);
}

}  // namespace tlsproxy::loop
