// Time in the load generator: nanoseconds of the monotonic clock.
#pragma once

#include <ctime>

#include <cstdint>

namespace tlsproxy::load {

using Nanoseconds = std::int64_t;

constexpr Nanoseconds kSecond = 1'000'000'000;

inline Nanoseconds now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

inline double to_seconds(Nanoseconds time) {
  return static_cast<double>(time) / static_cast<double>(kSecond);
}

inline Nanoseconds from_seconds(double seconds) {
  return static_cast<Nanoseconds>(seconds * static_cast<double>(kSecond));
}

}  // namespace tlsproxy::load
