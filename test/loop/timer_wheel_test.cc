#include "loop/timer_wheel.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "loop/timer.h"
#include "support/catch.h"
#include "support/heap.h"

using namespace tlsproxy;
using namespace std::chrono_literals;
using loop::Duration;
using loop::TimePoint;
using loop::Timer;
using loop::TimerWheel;

namespace {

// A clock that stands still until it is told to move, and an alarm that goes off as it moves past.
class FakeTime final : public TimerWheel::Driver {
 public:
  TimePoint now() override { return now_; }
  void wake_at(TimePoint when) override {
    wake_ = when;
    ++times_asked;
  }

  // Moves on to `time`, with every alarm on the way.
  void pass_to(TimerWheel& wheel, TimePoint time) {
    while (wake_ && *wake_ <= time) {
      now_ = std::max(now_, *wake_);
      wake_up(wheel);
    }
    now_ = std::max(now_, time);
  }
  void pass(TimerWheel& wheel, TimePoint::duration time) { pass_to(wheel, now_ + time); }

  // Moves on as if the machine had slept: no alarm on the way, one at the end.
  void oversleep(TimerWheel& wheel, TimePoint::duration time) {
    now_ += time;
    if (wake_ && *wake_ <= now_) wake_up(wheel);
  }

  int times_asked = 0;
  int times_woken = 0;

 private:
  void wake_up(TimerWheel& wheel) {
    ++times_woken;
    wake_.reset();
    wheel.expire();
  }

  TimePoint now_{123456789us};  // in the middle of a millisecond
  std::optional<TimePoint> wake_;
};

struct Alarm {
  explicit Alarm(TimerWheel& wheel, std::function<void()> on_expiry = {}) : then(std::move(on_expiry)) {
    timer.bind<&Alarm::expire>(wheel, *this);
  }
  void expire() {
    ++expired;
    if (then) then();
  }

  std::function<void()> then;
  int expired = 0;
  Timer timer;
};

struct Fixture {
  FakeTime time;
  TimerWheel wheel{time};
};

}  // namespace

TEST_CASE("timers expire in the order of their deadlines, in whatever order they were armed", "[timer]") {
  Fixture f;
  const std::vector<Duration> delays{1h, 5ms, 64ms, 63ms, 10min, 65ms, 1ms, 4096ms, 30s, 4095ms, 48h};
  std::vector<Duration> seen;
  std::vector<std::unique_ptr<Alarm>> alarms;
  for (const Duration delay : delays) {
    alarms.push_back(std::make_unique<Alarm>(f.wheel, [&seen, delay] { seen.push_back(delay); }));
    alarms.back()->timer.arm(delay);
  }
  SECTION("when each is called in its time") {
    f.time.pass(f.wheel, 72h);
  }
  SECTION("when all have become due in one long sleep") {
    f.time.oversleep(f.wheel, 72h);
  }
  CHECK(seen.size() == delays.size());
  CHECK(std::is_sorted(seen.begin(), seen.end()));
}

TEST_CASE("a timer expires less than a tick after its deadline, and never before, however far that is",
          "[timer]") {
  for (const std::chrono::nanoseconds delay :
       std::initializer_list<std::chrono::nanoseconds>{1ns, 999999ns, 1ms, 20ms, 63ms, 64ms, 65ms, 4095ms,
                                                       4096ms, 60s, 10min, 24h, 240h, 24h * 365 * 100}) {
    Fixture f;
    CAPTURE(delay.count());
    const TimePoint deadline = f.time.now() + delay;
    TimePoint expired_at{};
    Alarm alarm(f.wheel, [&] { expired_at = f.time.now(); });
    alarm.timer.arm_at(deadline);
    f.time.pass_to(f.wheel, deadline - 1ns);
    CHECK(alarm.expired == 0);
    f.time.pass(f.wheel, 1ms);
    CHECK(alarm.expired == 1);
    CHECK(expired_at >= deadline);
    CHECK(expired_at - deadline < 1ms);
    CHECK_FALSE(alarm.timer.armed());
  }
}

TEST_CASE("a delay beyond all time is as good as never", "[timer]") {
  Fixture f;
  Alarm delayed(f.wheel);
  Alarm dated(f.wheel);
  delayed.timer.arm(Duration::max());
  dated.timer.arm_at(TimePoint::max());
  f.time.pass(f.wheel, 24h * 365 * 200);
  CHECK(delayed.timer.armed());
  CHECK(dated.timer.armed());
}

TEST_CASE("what is due already is called by the next expire", "[timer]") {
  Fixture f;
  f.time.pass(f.wheel, 100ms);
  const Duration late = GENERATE(as<Duration>{}, 0ms, -1ms, -50ms, Duration::min());
  Alarm alarm(f.wheel);
  SECTION("by a delay") {
    alarm.timer.arm(late);
  }
  SECTION("by a deadline") {
    alarm.timer.arm_at(late == Duration::min() ? TimePoint::min() : f.time.now() + late);
  }
  CHECK(alarm.timer.armed());
  f.time.pass(f.wheel, 0ms);
  CHECK(alarm.expired == 1);
}

TEST_CASE("arming again replaces the deadline, earlier or later", "[timer]") {
  Fixture f;
  Alarm sooner(f.wheel);
  Alarm later(f.wheel);
  sooner.timer.arm(1h);
  later.timer.arm(1ms);
  sooner.timer.arm(10ms);
  later.timer.arm(2h);
  f.time.pass(f.wheel, 90min);
  CHECK(sooner.expired == 1);
  CHECK(later.expired == 0);
  f.time.pass(f.wheel, 90min);
  CHECK(sooner.expired == 1);
  CHECK(later.expired == 1);
}

TEST_CASE("a timer that was cancelled or destroyed is not called, wherever it lay", "[timer]") {
  const Duration delay = GENERATE(as<Duration>{}, -1ms, 3ms, 100ms, 10min, 240h);
  Fixture f;
  auto destroyed = std::make_unique<Alarm>(f.wheel, [] { FAIL("it is gone"); });
  Alarm cancelled(f.wheel);
  Alarm neighbour(f.wheel);
  for (Alarm* alarm : {destroyed.get(), &cancelled, &neighbour}) alarm->timer.arm(delay);
  if (delay > 0ms) f.time.pass(f.wheel, delay / 2);  // some way down the levels
  destroyed.reset();
  cancelled.timer.cancel();
  CHECK_FALSE(cancelled.timer.armed());
  f.time.pass(f.wheel, 300h);
  CHECK(cancelled.expired == 0);
  CHECK(neighbour.expired == 1);
}

TEST_CASE("a timer's owner may cancel, arm anew and destroy those that are due with it", "[timer]") {
  Fixture f;
  auto destroyed = std::make_unique<Alarm>(f.wheel, [] { FAIL("it is gone"); });
  Alarm cancelled(f.wheel);
  Alarm postponed(f.wheel);
  Alarm first(f.wheel, [&] {
    destroyed.reset();
    cancelled.timer.cancel();
    postponed.timer.arm(1h);
  });
  Alarm last(f.wheel);
  for (Alarm* alarm : {&first, destroyed.get(), &cancelled, &postponed, &last}) alarm->timer.arm(5ms);
  f.time.pass(f.wheel, 10ms);
  CHECK(first.expired == 1);
  CHECK(cancelled.expired == 0);
  CHECK(postponed.expired == 0);
  CHECK(last.expired == 1);
  f.time.pass(f.wheel, 1h);
  CHECK(postponed.expired == 1);
}

TEST_CASE("a timer's owner may destroy it, and arm it again", "[timer]") {
  Fixture f;
  std::unique_ptr<Alarm> mortal;
  mortal = std::make_unique<Alarm>(f.wheel, [&] { mortal.reset(); });
  Alarm periodic(f.wheel);
  periodic.then = [&] { periodic.timer.arm(7ms); };
  mortal->timer.arm(1ms);
  periodic.timer.arm(7ms);
  f.time.pass(f.wheel, 701ms);
  CHECK(mortal == nullptr);
  CHECK(periodic.expired == 100);
}

TEST_CASE("a timer armed for now by one that expires waits for the next expire", "[timer]") {
  Fixture f;
  Alarm greedy(f.wheel);
  greedy.then = [&] { greedy.timer.arm(0ms); };
  Alarm other(f.wheel);
  greedy.timer.arm(0ms);
  other.timer.arm(0ms);
  f.wheel.expire();
  CHECK(greedy.expired == 1);
  CHECK(other.expired == 1);
  f.wheel.expire();
  CHECK(greedy.expired == 2);
}

TEST_CASE("a wheel asks to be woken only when nothing earlier is on its way", "[timer]") {
  Fixture f;
  std::vector<std::unique_ptr<Alarm>> alarms;
  for (int i = 0; i < 100; ++i) alarms.push_back(std::make_unique<Alarm>(f.wheel));
  alarms[0]->timer.arm(10ms);
  CHECK(f.time.times_asked == 1);
  for (int round = 0; round < 100; ++round) {
    for (auto& alarm : alarms) {
      if (alarm != alarms[0]) alarm->timer.arm(Duration(20 + round));
    }
  }
  CHECK(f.time.times_asked == 1);
  alarms[1]->timer.arm(5ms);
  CHECK(f.time.times_asked == 2);
}

TEST_CASE("timers that come and go leave a wheel that sleeps", "[timer]") {
  Fixture f;
  Alarm alarm(f.wheel);
  for (int i = 1; i <= 10000; ++i) {
    alarm.timer.arm(Duration(i));
    alarm.timer.cancel();
  }
  f.time.pass(f.wheel, 240h);
  CHECK(f.time.times_woken <= 1);  // for the one it had asked for
}

TEST_CASE("a timer far away wakes its wheel once per level at most", "[timer]") {
  Fixture f;
  Alarm alarm(f.wheel);
  alarm.timer.arm(1ms);
  f.time.pass(f.wheel, 10ms);
  alarm.timer.arm(24h * 40);
  f.time.times_woken = 0;
  Alarm passer_by(f.wheel);
  passer_by.timer.arm(1ms);  // after which the wheel looks for what is next by its slots
  f.time.pass(f.wheel, 24h * 41);
  CHECK(alarm.expired == 2);
  CHECK(f.time.times_woken <= 1 + 8);
}

TEST_CASE("a million arms allocate nothing", "[timer][budget]") {
  Fixture f;
  Alarm one(f.wheel);
  Alarm other(f.wheel);
  std::mt19937 random(1);
  const std::uint64_t before = support::allocations();
  for (int i = 0; i < 1'000'000; ++i) {
    (i % 2 == 0 ? one : other).timer.arm(Duration(random() % 600'000));
    if (i % 1000 == 0) f.time.pass(f.wheel, 100ms);
  }
  CHECK(support::allocations() == before);
}

TEST_CASE("a wheel that goes leaves its timers disarmed", "[timer]") {
  FakeTime time;
  auto wheel = std::make_unique<TimerWheel>(time);
  Alarm due(*wheel);
  Alarm waiting(*wheel);
  due.timer.arm(0ms);
  waiting.timer.arm(1h);
  wheel.reset();
  CHECK_FALSE(due.timer.armed());
  CHECK_FALSE(waiting.timer.armed());
}

TEST_CASE("a wheel does what a plain list of deadlines would do", "[timer][model]") {
  const unsigned seed = GENERATE(range(1U, 31U));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Fixture f;
  struct Modelled {
    std::unique_ptr<Alarm> alarm;
    std::optional<TimePoint> deadline;
  };
  std::vector<Modelled> all(50);
  // Delays of every magnitude: from 0 to 2^40 ns, 18 minutes, and now and then to 2^55 ns, more than a year.
  const auto any_time = [&random] {
    const unsigned bits = random() % 16 == 0 ? 55 : 40;
    return std::chrono::nanoseconds(random() >> (64 - random() % bits - 1));
  };
  const auto arm = [&](Modelled& one) {
    one.deadline = f.time.now() + any_time();
    one.alarm->timer.arm_at(*one.deadline);
  };
  for (Modelled& one : all) {
    one.alarm = std::make_unique<Alarm>(f.wheel, [&] {
      REQUIRE(one.deadline);
      REQUIRE(*one.deadline <= f.time.now());
      one.deadline.reset();
      Modelled& another = all[random() % all.size()];
      if (random() % 4 == 0) arm(another);
    });
  }
  for (int step = 0; step < 3000; ++step) {
    Modelled& one = all[random() % all.size()];
    switch (random() % 4) {
      case 0:
      case 1:
        arm(one);
        break;
      case 2:
        one.deadline.reset();
        one.alarm->timer.cancel();
        break;
      default:
        if (random() % 2 == 0) {
          f.time.pass(f.wheel, any_time());
        } else {
          f.time.oversleep(f.wheel, any_time());
        }
    }
    for (const Modelled& each : all) {
      REQUIRE(each.alarm->timer.armed() == each.deadline.has_value());
      // Nothing is overdue by more than the tick it is rounded up to.
      if (each.deadline) REQUIRE(*each.deadline + 1ms > f.time.now());
    }
  }
}
