// Schedule: the instants at which operations are meant to begin, whatever the subject does.
//
// Latency that counts from these instants includes the wait behind a stall; counted from the actual
// start, a stall would hide all the operations it kept from starting.
#pragma once

#include <cstdint>
#include <random>

#include "clock.h"

namespace tlsproxy::load {

class Schedule {
 public:
  // Independent arrivals, `rate` a second on average. The same seed gives the same instants, on every
  // machine.
  static Schedule poisson(double rate, std::uint64_t seed);

  // One each 1/rate seconds.
  static Schedule even(double rate);

  // Begins anew: instants count from `start`.
  void begin(Nanoseconds start);

  // The next instant; advance() goes on to the one after it.
  [[nodiscard]] Nanoseconds next() const { return start_ + static_cast<Nanoseconds>(offset_); }
  void advance() { offset_ += gap(); }

 private:
  Schedule(double rate, bool random, std::uint64_t seed);
  double gap();

  std::mt19937_64 bits_;
  double mean_gap_;  // nanoseconds
  bool random_;
  Nanoseconds start_ = 0;
  double offset_ = 0;  // since start_; a sum of fractions, so that rounding does not shift the rate
};

}  // namespace tlsproxy::load
