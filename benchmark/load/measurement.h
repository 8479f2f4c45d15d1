// Measurement: what happened within the measured window.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "clock.h"
#include "connection.h"
#include "histogram.h"
#include "process.h"

namespace tlsproxy::load {

// Counters at one instant; the window is the difference of two.
struct Snapshot {
  Nanoseconds time = 0;
  Nanoseconds waited = 0;
  CpuTime cpu;
  Traffic traffic;
  std::vector<std::optional<Nanoseconds>> watched;  // as Options::watch
};

struct Measurement {
  Snapshot begin;
  Snapshot end;
  std::size_t open = 0;  // persistent connections when the window began
  std::uint64_t operations = 0;
  std::uint64_t unfinished = 0;
  Histogram latency;
  Histogram start_delay;
};

}  // namespace tlsproxy::load
