#include "histogram.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/catch.h"

using tlsproxy::load::Histogram;
using tlsproxy::load::Nanoseconds;

namespace {

Nanoseconds exact_percentile(const std::vector<Nanoseconds>& sorted, double of) {
  const auto rank = static_cast<std::size_t>(std::ceil(of * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

TEST_CASE("an empty histogram answers zero", "[histogram]") {
  const auto histogram = std::make_unique<Histogram>();
  CHECK(histogram->count() == 0);
  CHECK(histogram->min() == 0);
  CHECK(histogram->max() == 0);
  CHECK(histogram->mean() == 0);
  CHECK(histogram->percentile(0.99) == 0);
}

TEST_CASE("every percentile of one duration is that duration", "[histogram]") {
  for (const Nanoseconds duration : {0L, 1L, 255L, 256L, 257L, 12'345'678L, (1L << 42) - 1}) {
    const auto histogram = std::make_unique<Histogram>();
    histogram->add(duration);
    CHECK(histogram->percentile(0) == duration);
    CHECK(histogram->percentile(0.5) == duration);
    CHECK(histogram->percentile(1) == duration);
    CHECK(histogram->min() == duration);
    CHECK(histogram->max() == duration);
  }
}

TEST_CASE("durations out of range count as the nearest within", "[histogram]") {
  const auto histogram = std::make_unique<Histogram>();
  histogram->add(-5);
  histogram->add(INT64_MAX);
  CHECK(histogram->count() == 2);
  CHECK(histogram->min() == 0);
  CHECK(histogram->max() == (Nanoseconds{1} << 42) - 1);
}

TEST_CASE("durations under 256 ns are told apart", "[histogram]") {
  const auto histogram = std::make_unique<Histogram>();
  for (Nanoseconds duration = 1; duration <= 200; ++duration) histogram->add(duration);
  CHECK(histogram->percentile(0.5) == 100);
  CHECK(histogram->percentile(0.99) == 198);
  CHECK(histogram->percentile(0.995) == 199);
  CHECK(histogram->mean() == Approx(100.5));
}

TEST_CASE("a percentile is never too low, and at most one part in 128 too high", "[histogram]") {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> durations(12, 3);  // 160 us on average, from nanoseconds to seconds
  const auto histogram = std::make_unique<Histogram>();
  std::vector<Nanoseconds> all;
  for (int i = 0; i < 20'000; ++i) {
    all.push_back(static_cast<Nanoseconds>(std::min(durations(random), 4e12)));
    histogram->add(all.back());
  }
  std::sort(all.begin(), all.end());
  for (double of = 0; of <= 1; of += 0.001) {
    const Nanoseconds exact = exact_percentile(all, of);
    REQUIRE(histogram->percentile(of) >= exact);
    REQUIRE(histogram->percentile(of) - exact <= exact / 128);
  }
}
