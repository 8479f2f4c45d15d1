#include "loop/loop.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loop/io_event.h"
#include "loop/timer.h"
#include "os/fd.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace std::chrono_literals;
using loop::IoEvent;
using loop::IoNews;
using loop::Loop;
using loop::Task;
using loop::Timer;

namespace {

// A task that does what a test tells it, and says when it is destroyed.
class Scripted final : public Task {
 public:
  explicit Scripted(std::function<void(Scripted&)> run, std::function<void()> destroyed = {})
      : run_(std::move(run)), destroyed_(std::move(destroyed)) {}
  ~Scripted() override {
    if (destroyed_) destroyed_();
  }
  void run_ready() override { run_(*this); }

 private:
  std::function<void(Scripted&)> run_;
  std::function<void()> destroyed_;
};

// A descriptor whose news are written down.
struct Listener {
  void on_news(IoNews news) {
    calls++;
    last = news;
    if (then) then();
  }
  void start(Loop& loop, const os::Fd& fd, IoEvent::Trigger trigger) {
    event.start<&Listener::on_news>(loop, fd.get(), trigger, *this);
  }

  int calls = 0;
  IoNews last;
  std::function<void()> then;
  IoEvent event;
};

struct Pair {
  os::Fd ours;
  os::Fd peer;
};

Pair make_pair() {
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
  return {os::Fd(fds[0]), os::Fd(fds[1])};
}

void send_to(const os::Fd& fd, std::string_view bytes) {
  REQUIRE(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

// Keeps a turn from waiting, so that a test sees exactly one pass over what is there.
void turn_without_waiting(Loop& loop) {
  Scripted no_op([](Scripted&) {});
  loop.schedule(no_op);
  loop.turn();
}

struct Alarm {
  explicit Alarm(Loop& loop) { timer.bind<&Alarm::on_expiry>(loop, *this); }
  void on_expiry() { ++expired; }
  Timer timer;
  int expired = 0;
};

}  // namespace

TEST_CASE("a scheduled task runs once in the turn, however often it was scheduled", "[loop]") {
  Loop loop;
  int runs = 0;
  Scripted task([&runs](Scripted&) { ++runs; });
  loop.schedule(task);
  loop.schedule(task);
  CHECK(task.scheduled());
  loop.turn();
  CHECK(runs == 1);
  CHECK_FALSE(task.scheduled());
  turn_without_waiting(loop);
  CHECK(runs == 1);
}

TEST_CASE("a task that schedules itself again lets the events of the next turn come first", "[loop]") {
  Loop loop;
  Pair pair = make_pair();
  std::string order;
  Listener listener;
  listener.start(loop, pair.ours, IoEvent::Trigger::level_read);
  listener.then = [&order] { order += "event "; };
  Scripted greedy([&](Scripted& self) {
    order += "task ";
    if (order == "task ") {
      send_to(pair.peer, "x");
      loop.schedule(self);
    }
  });
  loop.schedule(greedy);
  loop.turn();
  CHECK(order == "task ");
  loop.turn();
  CHECK(order == "task event task ");
}

TEST_CASE("a task that was destroyed is not run", "[loop]") {
  Loop loop;
  auto task = std::make_unique<Scripted>([](Scripted&) { FAIL("it is gone"); });
  loop.schedule(*task);
  task.reset();
  turn_without_waiting(loop);
}

TEST_CASE("a retired task lives to the end of the turn, and is not run any more", "[loop]") {
  Loop loop;
  bool destroyed = false;
  auto victim = std::make_unique<Scripted>([](Scripted&) { FAIL("it is retired"); },
                                           [&destroyed] { destroyed = true; });
  Scripted* const alive = victim.get();
  bool alive_after = false;
  Scripted killer([&](Scripted&) { loop.retire(std::move(victim)); });
  Scripted witness([&](Scripted&) { alive_after = !destroyed; });
  loop.schedule(killer);
  loop.schedule(*alive);
  loop.schedule(witness);
  loop.turn();
  CHECK(alive_after);
  CHECK(destroyed);
}

TEST_CASE("a task that retires itself, and one retired by a destructor, are destroyed", "[loop]") {
  Loop loop;
  int destroyed = 0;
  std::unique_ptr<Task> second = std::make_unique<Scripted>([](Scripted&) {}, [&] { ++destroyed; });
  std::unique_ptr<Task> first;
  auto task = std::make_unique<Scripted>([&](Scripted&) { loop.retire(std::move(first)); },
                                         [&] {
                                           ++destroyed;
                                           loop.retire(std::move(second));
                                         });
  loop.schedule(*task);
  first = std::move(task);
  loop.turn();
  CHECK(destroyed == 2);
}

TEST_CASE("the time stands still within a turn and moves on with the next", "[loop]") {
  Loop loop;
  std::vector<loop::TimePoint> seen;
  const auto look = [&](Scripted&) {
    seen.push_back(loop.now());
    while (loop::Clock::now() <= seen.back()) {
    }
    seen.push_back(loop.now());
  };
  Scripted task(look);
  loop.schedule(task);
  loop.turn();
  loop.schedule(task);
  loop.turn();
  REQUIRE(seen.size() == 4);
  CHECK(seen[0] == seen[1]);
  CHECK(seen[2] > seen[1]);
  CHECK(seen[2] == seen[3]);
}

TEST_CASE("run turns until it is told to stop", "[loop]") {
  Loop loop;
  int runs = 0;
  Scripted task([&](Scripted& self) {
    if (++runs == 3) loop.stop();
    loop.schedule(self);
  });
  loop.schedule(task);
  loop.run();
  CHECK(runs == 3);
}

TEST_CASE("an edge is told once, and again when something changed", "[loop][io_event]") {
  Loop loop;
  Pair pair = make_pair();
  Listener listener;
  listener.start(loop, pair.ours, IoEvent::Trigger::edge_both);
  CHECK(listener.event.started());

  loop.turn();
  CHECK(listener.calls == 1);  // a new socket is writable
  CHECK(listener.last.writable);
  CHECK_FALSE(listener.last.readable);
  turn_without_waiting(loop);
  CHECK(listener.calls == 1);

  send_to(pair.peer, "one");
  loop.turn();
  CHECK(listener.calls == 2);
  CHECK(listener.last.readable);
  CHECK_FALSE(listener.last.hangup);
  turn_without_waiting(loop);
  CHECK(listener.calls == 2);  // though the bytes are still there

  send_to(pair.peer, "two");
  loop.turn();
  CHECK(listener.calls == 3);
}

TEST_CASE("the peer's end is told even when it came together with its last bytes", "[loop][io_event]") {
  Loop loop;
  Pair pair = make_pair();
  send_to(pair.peer, "last");
  REQUIRE(::shutdown(pair.peer.get(), SHUT_WR) == 0);
  Listener listener;
  listener.start(loop, pair.ours, IoEvent::Trigger::edge_both);
  loop.turn();
  CHECK(listener.last.readable);
  CHECK(listener.last.hangup);
}

TEST_CASE("a level is told until it is gone, and can be paused", "[loop][io_event]") {
  Loop loop;
  Pair pair = make_pair();
  Listener listener;
  listener.start(loop, pair.ours, IoEvent::Trigger::level_read);
  send_to(pair.peer, "x");
  loop.turn();
  loop.turn();
  CHECK(listener.calls == 2);
  CHECK(listener.last.readable);

  listener.event.stop();
  CHECK_FALSE(listener.event.started());
  turn_without_waiting(loop);
  CHECK(listener.calls == 2);

  listener.start(loop, pair.ours, IoEvent::Trigger::level_read);
  loop.turn();
  CHECK(listener.calls == 3);
  char byte = 0;
  REQUIRE(::read(pair.ours.get(), &byte, 1) == 1);
  turn_without_waiting(loop);
  CHECK(listener.calls == 3);
}

TEST_CASE("an event stopped by another one's handler is not told in the same turn", "[loop][io_event]") {
  Loop loop;
  Pair first = make_pair();
  Pair second = make_pair();
  Listener a;
  Listener b;
  a.then = [&b] { b.event.stop(); };
  b.then = [&a] { a.event.stop(); };
  a.start(loop, first.ours, IoEvent::Trigger::edge_both);
  b.start(loop, second.ours, IoEvent::Trigger::edge_both);
  loop.turn();
  CHECK(a.calls + b.calls == 1);
}

TEST_CASE("a timer expires once, and not before its time", "[loop][timer]") {
  Loop loop;
  Alarm alarm(loop);
  CHECK_FALSE(alarm.timer.armed());
  const auto start = loop::Clock::now();
  alarm.timer.arm(20ms);
  CHECK(alarm.timer.armed());
  while (alarm.expired == 0) loop.turn();
  CHECK(loop::Clock::now() - start >= 20ms);
  CHECK_FALSE(alarm.timer.armed());
  turn_without_waiting(loop);
  CHECK(alarm.expired == 1);
}

TEST_CASE("arming a timer again replaces its time", "[loop][timer]") {
  Loop loop;
  Alarm early(loop);
  Alarm late(loop);
  early.timer.arm(1h);
  late.timer.arm(1ms);
  late.timer.arm(1h);
  early.timer.arm(1ms);
  while (early.expired == 0) loop.turn();
  CHECK(early.expired == 1);
  CHECK(late.expired == 0);
  CHECK(late.timer.armed());
}

TEST_CASE("a delay that is over already expires in the next turn", "[loop][timer]") {
  Loop loop;
  Alarm alarm(loop);
  alarm.timer.arm(-5s);
  loop.turn();
  CHECK(alarm.expired == 1);
}

TEST_CASE("a timer that was cancelled or destroyed does not expire", "[loop][timer]") {
  Loop loop;
  Alarm kept(loop);
  Alarm marker(loop);
  {
    Alarm gone(loop);
    gone.timer.arm(0ms);
  }
  kept.timer.arm(0ms);
  kept.timer.cancel();
  CHECK_FALSE(kept.timer.armed());
  marker.timer.arm(5ms);
  while (marker.expired == 0) loop.turn();
  CHECK(kept.expired == 0);
}

TEST_CASE("a timer armed between turns counts from then, not from the last turn", "[loop][timer]") {
  Loop loop;
  Alarm alarm(loop);
  Scripted look([&loop](Scripted&) { static_cast<void>(loop.now()); });
  loop.schedule(look);
  loop.turn();
  const auto turned = loop::Clock::now();
  while (loop::Clock::now() < turned + 10ms) {
  }
  const auto start = loop::Clock::now();
  alarm.timer.arm(5ms);
  while (alarm.expired == 0) loop.turn();
  CHECK(loop::Clock::now() - start >= 5ms);
}

TEST_CASE("a timer expires in a loop that never waits", "[loop][timer]") {
  Loop loop;
  Alarm alarm(loop);
  Scripted busy([&loop](Scripted& self) { loop.schedule(self); });
  loop.schedule(busy);
  alarm.timer.arm(2ms);
  while (alarm.expired == 0) loop.turn();
  CHECK(alarm.expired == 1);
}

TEST_CASE("a timer armed by one that expires may come earlier than all others", "[loop][timer]") {
  Loop loop;
  Alarm far(loop);
  far.timer.arm(1h);
  struct Chain {
    explicit Chain(Loop& loop) { timer.bind<&Chain::on_expiry>(loop, *this); }
    void on_expiry() {
      if (++expired < 3) timer.arm(1ms);
    }
    Timer timer;
    int expired = 0;
  } chain(loop);
  chain.timer.arm(1ms);
  while (chain.expired < 3) loop.turn();
  CHECK(far.expired == 0);
  CHECK(far.timer.armed());
}

TEST_CASE("a timer may outlive its loop", "[loop][timer]") {
  auto loop = std::make_unique<Loop>();
  Alarm alarm(*loop);
  alarm.timer.arm(1h);
  loop.reset();
  CHECK_FALSE(alarm.timer.armed());
}
