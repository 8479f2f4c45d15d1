#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/catch.h"

using tlsproxy::load::kSecond;
using tlsproxy::load::Nanoseconds;
using tlsproxy::load::Schedule;

namespace {

std::vector<Nanoseconds> first_instants(Schedule schedule, Nanoseconds begin, int count) {
  std::vector<Nanoseconds> instants;
  schedule.begin(begin);
  for (int i = 0; i < count; ++i, schedule.advance()) instants.push_back(schedule.next());
  return instants;
}

}  // namespace

TEST_CASE("an even schedule keeps its rate without drift", "[schedule]") {
  const auto instants = first_instants(Schedule::even(3), 1000, 3'000'000);
  CHECK(instants.front() == 1000 + kSecond / 3);
  CHECK(std::abs(instants.back() - (1000 + 1'000'000 * kSecond)) <
        100'000);  // whole nanoseconds would lose 1 ms
}

TEST_CASE("the same seed gives the same instants, another gives others", "[schedule]") {
  const auto instants = first_instants(Schedule::poisson(1000, 42), 0, 100);
  CHECK(instants == first_instants(Schedule::poisson(1000, 42), 0, 100));
  CHECK(instants != first_instants(Schedule::poisson(1000, 43), 0, 100));
}

TEST_CASE("a schedule that begins later has the same gaps", "[schedule]") {
  const auto early = first_instants(Schedule::poisson(1000, 1), 0, 100);
  const auto late = first_instants(Schedule::poisson(1000, 1), 5 * kSecond, 100);
  for (std::size_t i = 0; i < early.size(); ++i) CHECK(late[i] == early[i] + 5 * kSecond);
}

TEST_CASE("instants never go back", "[schedule]") {
  const auto instants = first_instants(Schedule::poisson(1e6, 3), 0, 100'000);
  CHECK(std::is_sorted(instants.begin(), instants.end()));
}

TEST_CASE("Poisson gaps have the mean, the spread and the tail of an exponential distribution",
          "[schedule]") {
  constexpr int kCount = 200'000;
  constexpr double kMean = 1e6;  // nanoseconds, at 1000 a second
  const auto instants = first_instants(Schedule::poisson(1000, 11), 0, kCount);
  double sum = 0;
  double squares = 0;
  int long_ones = 0;
  Nanoseconds previous = 0;
  for (const Nanoseconds instant : instants) {
    const auto gap = static_cast<double>(instant - previous);
    previous = instant;
    sum += gap;
    squares += gap * gap;
    long_ones += gap > 3 * kMean ? 1 : 0;
  }
  const double mean = sum / kCount;
  CHECK(mean == Approx(kMean).epsilon(0.01));
  CHECK(std::sqrt(squares / kCount - mean * mean) == Approx(kMean).epsilon(0.02));
  CHECK(long_ones == Approx(kCount * std::exp(-3)).epsilon(0.05));
}
