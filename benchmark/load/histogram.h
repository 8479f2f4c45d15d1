// Histogram: how often each duration came, in fixed memory and with a bounded relative error.
//
//   bucket:  0 1 2 ... 255 | 128 of width 2 | 128 of width 4 | ... up to 2^42 ns (73 minutes)
//
// Below 256 ns each value has its bucket; above, each power of two is cut into 128. A percentile is
// the upper edge of its bucket, so it is never too low, and at most 1/128 too high.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "clock.h"

namespace tlsproxy::load {

class Histogram {
 public:
  // Negative durations count as 0, longer ones than the last bucket's as that.
  void add(Nanoseconds duration);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] Nanoseconds min() const { return count_ == 0 ? 0 : min_; }
  [[nodiscard]] Nanoseconds max() const { return max_; }
  [[nodiscard]] double mean() const;

  // The smallest duration that at least the share `of` (0 to 1) of all do not exceed; 0 when empty.
  [[nodiscard]] Nanoseconds percentile(double of) const;

 private:
  static constexpr unsigned kSplitBits = 7;
  static constexpr unsigned kValueBits = 42;
  static constexpr std::size_t kBuckets = (kValueBits - kSplitBits + 1) << kSplitBits;

  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t upper_edge(std::size_t bucket);

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
  Nanoseconds min_ = 0;
  Nanoseconds max_ = 0;
};

}  // namespace tlsproxy::load
