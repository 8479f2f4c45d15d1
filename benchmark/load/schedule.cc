#include "schedule.h"

#include <cmath>

namespace tlsproxy::load {

Schedule::Schedule(double rate, bool random, std::uint64_t seed)
    : bits_(seed), mean_gap_(static_cast<double>(kSecond) / rate), random_(random) {}

Schedule Schedule::poisson(double rate, std::uint64_t seed) {
  return {rate, true, seed};
}

Schedule Schedule::even(double rate) {
  return {rate, false, 0};
}

void Schedule::begin(Nanoseconds start) {
  start_ = start;
  offset_ = gap();
}

// Not std::exponential_distribution: the standard leaves open which numbers it makes of the same bits.
double Schedule::gap() {
  if (!random_) return mean_gap_;
  constexpr double kUnit = 0x1p-53;
  const double uniform = static_cast<double>(bits_() >> 11) * kUnit;  // [0, 1)
  return -std::log1p(-uniform) * mean_gap_;
}

}  // namespace tlsproxy::load
