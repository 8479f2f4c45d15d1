#include "histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tlsproxy::load {

std::size_t Histogram::bucket_of(std::uint64_t value) {
  constexpr std::uint64_t kExact = 2U << kSplitBits;
  if (value < kExact) return value;
  const auto shift = static_cast<unsigned>(std::bit_width(value)) - kSplitBits - 1;
  return (static_cast<std::size_t>(shift) << kSplitBits) + (value >> shift);
}

std::uint64_t Histogram::upper_edge(std::size_t bucket) {
  constexpr std::size_t kExact = 2U << kSplitBits;
  if (bucket < kExact) return bucket;
  const std::size_t shift = (bucket >> kSplitBits) - 1;
  return ((bucket - (shift << kSplitBits) + 1) << shift) - 1;
}

void Histogram::add(Nanoseconds duration) {
  constexpr Nanoseconds kLongest = (Nanoseconds{1} << kValueBits) - 1;
  const Nanoseconds value = std::clamp<Nanoseconds>(duration, 0, kLongest);
  buckets_[bucket_of(static_cast<std::uint64_t>(value))] += 1;
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
  count_ += 1;
}

double Histogram::mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

Nanoseconds Histogram::percentile(double of) const {
  if (count_ == 0) return 0;
  const auto wanted = std::clamp<std::uint64_t>(
      static_cast<std::uint64_t>(std::ceil(of * static_cast<double>(count_))), 1, count_);
  std::uint64_t seen = 0;
  std::size_t bucket = 0;
  while ((seen += buckets_[bucket]) < wanted) ++bucket;
  return std::clamp(static_cast<Nanoseconds>(upper_edge(bucket)), min_, max_);
}

}  // namespace tlsproxy::load
