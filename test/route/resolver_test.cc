#include "route/resolver.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "log/log.h"
#include "loop/timer.h"
#include "route/dns_stub.h"
#include "support/catch.h"

namespace tlsproxy::route {
namespace {

using namespace std::chrono_literals;
using Mood = DnsStub::Mood;

// Beats every 10 ms, so that turn() always returns soon, and notes the longest time between two beats.
class Heartbeat {
 public:
  explicit Heartbeat(loop::Loop& loop) {
    timer_.bind<&Heartbeat::beat>(loop, *this);
    timer_.arm(10ms);
  }
  void restart() {
    last_ = loop::Clock::now();
    longest_gap = {};
  }
  loop::Clock::duration longest_gap{};

 private:
  void beat() {
    const auto now = loop::Clock::now();
    longest_gap = std::max(longest_gap, now - last_);
    last_ = now;
    timer_.arm(10ms);
  }
  loop::Timer timer_;
  loop::TimePoint last_ = loop::Clock::now();
};

// A loop with a name server, and a resolver that asks it on behalf of backends.
struct World {
  loop::Loop loop;
  Heartbeat heart{loop};
  DnsStub dns{loop};
  config::Resolver config;
  config::Backend backend;
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<Resolver> resolver;
  int settled = 0;
  int turns = 0;

  explicit World(const std::vector<std::string>& hosts = {"db.example"}) {
    config.servers = {dns.address()};
    config.timeout = 300ms;
    std::uint16_t port = 8000;
    for (const std::string& host : hosts) {
      config::Server server;
      server.at = config::HostPort{host, ++port};
      backend.servers.push_back(server);
    }
  }

  void start() {
    cluster = std::make_unique<Cluster>(backend);
    resolver = std::make_unique<Resolver>(loop, config);
    resolver->watch(*cluster);
    resolver->start([this] { ++settled; });
  }

  bool turn_until(const std::function<bool()>& condition, loop::Duration limit = 10s) {
    const auto end = loop::Clock::now() + limit;
    while (!condition()) {
      if (loop::Clock::now() > end) return false;
      loop.turn();
      ++turns;
    }
    return true;
  }
  void turn_for(loop::Duration time) {
    turn_until([] { return false; }, time);
  }
  bool turn_until_settled() {
    return turn_until([this] { return settled > 0; });
  }

  [[nodiscard]] std::string endpoints() const {
    std::vector<std::string> texts;
    for (const EndpointPtr& endpoint : cluster->endpoints()) texts.push_back(endpoint->address.to_string());
    std::sort(texts.begin(), texts.end());
    std::string all;
    for (const std::string& text : texts) all += (all.empty() ? "" : " ") + text;
    return all;
  }
  [[nodiscard]] std::ptrdiff_t asked(int type) const {
    return std::count_if(dns.asked.begin(), dns.asked.end(),
                         [type](const auto& q) { return q.type == type; });
  }
};

// Takes the error log while it lives.
class LogCapture {
 public:
  LogCapture() : file_(::memfd_create("log", MFD_CLOEXEC)) {
    log::set_error_target(os::Fd(::dup(file_.get())));
    log::set_level(spdlog::level::info);
  }
  ~LogCapture() {
    log::set_level(spdlog::level::off);
    log::set_error_target(log::open_target("stderr").value());
  }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  [[nodiscard]] std::string text() const {
    std::string all(64 * 1024, '\0');
    const ssize_t size = ::pread(file_.get(), all.data(), all.size(), 0);
    all.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return all;
  }
  // How many lines say `words`.
  [[nodiscard]] int lines(std::string_view words) const {
    const std::string all = text();
    int count = 0;
    for (std::size_t at = all.find(words); at != std::string::npos; at = all.find(words, at + 1)) ++count;
    return count;
  }

 private:
  os::Fd file_;
};

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

}  // namespace

TEST_CASE("a name becomes endpoints with the server's port, of both families", "[resolver]") {
  World world;
  world.dns.reply.addresses = {"192.0.2.1", "192.0.2.2", "2001:db8::1"};
  world.start();
  CHECK(world.settled == 0);
  CHECK(world.endpoints().empty());
  REQUIRE(world.turn_until_settled());
  CHECK(world.endpoints() == "192.0.2.1:8001 192.0.2.2:8001 [2001:db8::1]:8001");
  world.turn_for(50ms);
  CHECK(world.settled == 1);
  CHECK(world.asked(kTypeA) == 1);
  CHECK(world.asked(kTypeAaaa) == 1);
}

TEST_CASE("only the families that are wanted are asked for", "[resolver]") {
  World world;
  world.dns.reply.addresses = {"192.0.2.1", "2001:db8::1"};
  SECTION("no IPv6") {
    world.config.ipv6 = false;
    world.start();
    REQUIRE(world.turn_until_settled());
    CHECK(world.endpoints() == "192.0.2.1:8001");
    CHECK(world.asked(kTypeAaaa) == 0);
  }
  SECTION("no IPv4") {
    world.config.ipv4 = false;
    world.start();
    REQUIRE(world.turn_until_settled());
    CHECK(world.endpoints() == "[2001:db8::1]:8001");
    CHECK(world.asked(kTypeA) == 0);
  }
}

TEST_CASE("servers that share a name share its lookup, whatever its case", "[resolver]") {
  World world({"db.example", "DB.Example"});
  world.dns.reply.addresses = {"192.0.2.1"};
  world.start();
  REQUIRE(world.turn_until_settled());
  CHECK(world.endpoints() == "192.0.2.1:8001 192.0.2.1:8002");
  CHECK(world.asked(kTypeA) == 1);
}

TEST_CASE("without names a resolver is settled at once", "[resolver]") {
  World world(std::vector<std::string>{});
  world.start();
  CHECK(world.settled == 1);
}

TEST_CASE("the hosts file answers before any server is asked, within start()", "[resolver]") {
  World world({"localhost"});
  world.config.ipv6 = false;
  world.start();
  CHECK(world.settled == 1);
  CHECK(world.endpoints() == "127.0.0.1:8001");
  CHECK(world.dns.asked.empty());
}

TEST_CASE("a name of which only the A record is to be had uses that", "[resolver]") {
  World world;
  world.dns.reply.addresses = {"192.0.2.1"};
  const auto slow = GENERATE(false, true);
  world.dns.reply.v6 =
      slow ? Mood::silent : GENERATE(Mood::answer, Mood::refused, Mood::not_found, Mood::garbage);
  world.start();
  REQUIRE(world.turn_until_settled());
  CHECK(world.endpoints() == "192.0.2.1:8001");
}

TEST_CASE("a first failure settles too, and the name is asked for again", "[resolver]") {
  World world;
  world.dns.reply.addresses = {"192.0.2.1"};
  const Mood mood = GENERATE(Mood::refused, Mood::not_found, Mood::silent, Mood::garbage);
  CAPTURE(static_cast<int>(mood));
  world.dns.reply.v4 = world.dns.reply.v6 = mood;
  world.start();
  REQUIRE(world.turn_until_settled());
  CHECK(world.endpoints().empty());
  world.dns.reply.v4 = world.dns.reply.v6 = Mood::answer;
  REQUIRE(world.turn_until([&] { return !world.endpoints().empty(); }));
  CHECK(world.endpoints() == "192.0.2.1:8001");
  CHECK(world.settled == 1);
}

TEST_CASE("one name that hangs holds back the settling, not the other names", "[resolver]") {
  World world({"localhost", "db.example"});
  world.config.ipv6 = false;
  world.dns.reply.v4 = Mood::silent;
  world.start();
  CHECK(world.settled == 0);
  CHECK(world.endpoints() == "127.0.0.1:8001");
  CHECK(world.turn_until_settled());
}

TEST_CASE("while a lookup hangs the loop keeps turning without spinning, and the timeout ends it",
          "[resolver]") {
  World world;
  world.config.timeout = 600ms;
  world.dns.reply.v4 = world.dns.reply.v6 = Mood::silent;
  world.start();
  world.heart.restart();
  const auto begin = loop::Clock::now();
  world.turns = 0;
  REQUIRE(world.turn_until_settled());
  const auto took = loop::Clock::now() - begin;
  CHECK(took > 500ms);
  CHECK(took < 1500ms);
  CHECK(world.heart.longest_gap < 100ms);
  CHECK(world.turns < 150);  // 60 beats, and a few for the tries
  CHECK(world.asked(kTypeA) == 2);
}

TEST_CASE("a server that is not there fails the lookup without spinning", "[resolver]") {
  World world;
  {
    const DnsStub gone(world.loop);
    world.config.servers = {gone.address()};
  }
  world.start();
  REQUIRE(world.turn_until_settled());
  CHECK(world.turns < 150);
  CHECK(world.endpoints().empty());
}

TEST_CASE("the second server is asked within the timeout when the first is silent", "[resolver]") {
  World world;
  DnsStub second(world.loop);
  world.dns.reply.v4 = world.dns.reply.v6 = Mood::silent;
  second.reply.addresses = {"192.0.2.7"};
  world.config.servers = {world.dns.address(), second.address()};
  world.start();
  REQUIRE(world.turn_until_settled());
  CHECK(world.endpoints() == "192.0.2.7:8001");
}

TEST_CASE("an answer that does not fit a datagram is fetched over TCP", "[resolver]") {
  World world;
  world.dns.reply.truncated = true;
  for (int i = 1; i <= 100; ++i) world.dns.reply.addresses.push_back("192.0.2." + std::to_string(i));
  world.start();
  world.turns = 0;
  REQUIRE(world.turn_until_settled());
  CHECK(world.cluster->endpoints().size() == 100);
  CHECK(std::any_of(world.dns.asked.begin(), world.dns.asked.end(), [](const auto& q) { return q.tcp; }));
  CHECK(world.turns < 2000);
}

TEST_CASE("a changed answer replaces the endpoints and keeps those that stay", "[resolver]") {
  World world;
  world.config.valid = 30ms;
  world.dns.reply.addresses = {"192.0.2.1", "192.0.2.2"};
  world.start();
  REQUIRE(world.turn_until_settled());
  const std::vector<EndpointPtr> before = world.cluster->endpoints();
  world.dns.reply.addresses = {"192.0.2.3", "192.0.2.2"};
  REQUIRE(world.turn_until([&] { return world.endpoints() == "192.0.2.2:8001 192.0.2.3:8001"; }));
  const auto stays = std::find_if(before.begin(), before.end(), [](const EndpointPtr& endpoint) {
    return endpoint->address.to_string() == "192.0.2.2:8001";
  });
  CHECK(world.cluster->endpoints()[0] == *stays);
}

TEST_CASE("an answer is used as long as its TTL says, at least a second", "[resolver]") {
  World world;
  world.dns.reply.addresses = {"192.0.2.1"};
  world.dns.reply.ttl = GENERATE(0U, 1U);
  world.start();
  REQUIRE(world.turn_until_settled());
  REQUIRE(world.turn_until([&] { return world.asked(kTypeA) == 2; }));
  const auto wait = world.dns.asked.back().time - world.dns.asked.front().time;
  CHECK(wait >= 990ms);
  CHECK(wait < 1900ms);
}

TEST_CASE("a failure keeps the last good addresses, pauses longer each time, and is logged once",
          "[resolver]") {
  LogCapture log;
  World world;
  world.config.valid = 50ms;
  world.config.ipv6 = false;
  world.dns.reply.addresses = {"192.0.2.1"};
  world.start();
  REQUIRE(world.turn_until_settled());
  CHECK(log.text().empty());

  world.dns.reply.v4 = Mood::not_found;
  REQUIRE(world.turn_until([&] { return log.lines("db.example") == 1; }));
  CHECK(log.lines("no longer resolves") == 1);
  CHECK(log.lines("still using 192.0.2.1") == 1);
  CHECK(world.endpoints() == "192.0.2.1:8001");
  const auto first = loop::Clock::now();
  const auto asked = world.asked(kTypeA);
  REQUIRE(world.turn_until([&] { return world.asked(kTypeA) == asked + 1; }));
  const auto second = loop::Clock::now();
  CHECK(second - first > 900ms);
  world.turn_for(100ms);
  CHECK(log.lines("db.example") == 1);

  world.dns.reply.v4 = Mood::answer;
  world.dns.reply.addresses = {"192.0.2.2"};
  REQUIRE(world.turn_until([&] { return world.endpoints() == "192.0.2.2:8001"; }));
  CHECK(loop::Clock::now() - second > 1900ms);
  CHECK(log.lines("resolves again to 192.0.2.2") == 1);
  CHECK(log.lines("db.example") == 2);
}

TEST_CASE("a name that never resolved and one whose addresses change are logged once each", "[resolver]") {
  LogCapture log;
  World world;
  world.config.valid = 30ms;
  world.config.ipv6 = false;
  world.dns.reply.addresses = {"192.0.2.1", "192.0.2.2"};
  world.start();
  REQUIRE(world.turn_until_settled());
  world.dns.reply.addresses = {"192.0.2.2", "192.0.2.1"};  // another order is no change
  const auto asked = world.asked(kTypeA);
  REQUIRE(world.turn_until([&] { return world.asked(kTypeA) > asked + 1; }));
  CHECK(log.text().empty());
  world.dns.reply.addresses = {"192.0.2.3"};
  REQUIRE(world.turn_until([&] { return world.endpoints() == "192.0.2.3:8001"; }));
  world.turn_for(100ms);
  CHECK(log.lines("now resolves to 192.0.2.3") == 1);
  CHECK(log.lines("db.example") == 1);
}

TEST_CASE("a resolver that goes while it is asking calls nobody and leaves nothing open", "[resolver]") {
  World world({"a.example", "b.example", "c.example"});
  world.dns.reply.addresses = {"192.0.2.1"};
  const bool half_answered = GENERATE(false, true);
  world.dns.reply.v4 = half_answered ? Mood::answer : Mood::silent;
  world.dns.reply.v6 = Mood::silent;
  world.config.timeout = 5s;
  const auto before = open_descriptors();
  world.start();
  REQUIRE(world.turn_until([&] { return world.dns.asked.size() >= 6; }));
  world.turn_for(30ms);
  CHECK(open_descriptors() > before);
  world.resolver.reset();
  CHECK(open_descriptors() == before);
  world.turn_for(100ms);
  CHECK(world.settled == 0);
  CHECK(world.endpoints().empty());
}

TEST_CASE("a lookup that is over leaves no descriptor open", "[resolver]") {
  World world;
  world.dns.reply.addresses = {"192.0.2.1"};
  world.config.valid = 5ms;
  const auto before = open_descriptors();
  world.start();
  REQUIRE(world.turn_until([&] { return world.asked(kTypeA) >= 20; }));
  REQUIRE(world.turn_until([&] { return open_descriptors() == before; }));
}

TEST_CASE("whoever is told that all is settled may destroy the resolver", "[resolver]") {
  World world({GENERATE(as<std::string>{}, "localhost", "db.example")});
  world.dns.reply.v4 = world.dns.reply.v6 = GENERATE(Mood::answer, Mood::silent);
  world.dns.reply.addresses = {"192.0.2.1"};
  world.cluster = std::make_unique<Cluster>(world.backend);
  world.resolver = std::make_unique<Resolver>(world.loop, world.config);
  world.resolver->watch(*world.cluster);
  Resolver* resolver = world.resolver.release();
  resolver->start([&world, resolver] {
    ++world.settled;
    delete resolver;
  });
  CHECK(world.turn_until_settled());
  world.turn_for(30ms);
  CHECK(world.settled == 1);
}

}  // namespace tlsproxy::route
