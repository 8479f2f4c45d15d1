#include "route/cluster.h"

#include <algorithm>
#include <random>

#include "support/catch.h"

namespace tlsproxy::route {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{1000s};

// Servers "a", "b", ... on ports 1, 2, ... of one address; a test then sets what it is about.
config::Backend backend_of(const std::vector<std::uint32_t>& weights) {
  config::Backend backend;
  std::uint16_t port = 0;
  for (const std::uint32_t weight : weights) {
    config::Server server;
    server.at = os::SocketAddress::from_ip("192.0.2.1", ++port).value();
    server.weight = weight;
    backend.servers.push_back(server);
  }
  return backend;
}

config::Server named_server(std::string host, std::uint16_t port) {
  config::Server server;
  server.at = config::HostPort{std::move(host), port};
  return server;
}

std::vector<os::SocketAddress> addresses(const std::vector<std::string>& texts) {
  std::vector<os::SocketAddress> result;
  for (const std::string& text : texts) result.push_back(os::SocketAddress::parse(text).value());
  return result;
}

char letter(const EndpointPtr& endpoint) {
  return endpoint == nullptr ? '-' : static_cast<char>('a' + endpoint->address.port() - 1);
}

std::string picks(Cluster& cluster, int count, TimePoint now = kStart) {
  std::string sequence;
  for (int i = 0; i < count; ++i) sequence += letter(cluster.pick({}, now));
  return sequence;
}

std::string ports(const Cluster& cluster) {
  std::string text;
  for (const EndpointPtr& endpoint : cluster.endpoints()) text += endpoint->address.to_string() + " ";
  return text;
}

}  // namespace

TEST_CASE("weights 5, 1, 1 are served smoothly, as nginx does", "[cluster]") {
  const config::Backend backend = backend_of({5, 1, 1});
  Cluster cluster(backend);
  CHECK(picks(cluster, 14) == "aabacaaaabacaa");
}

TEST_CASE("equal weights take turns in the order of the configuration", "[cluster]") {
  const config::Backend backend = backend_of({1, 1, 1});
  Cluster cluster(backend);
  CHECK(picks(cluster, 7) == "abcabca");
}

TEST_CASE("an endpoint that was tried is not picked again, until none is left", "[cluster]") {
  const config::Backend backend = backend_of({1, 1, 1});
  Cluster cluster(backend);
  std::vector<EndpointPtr> tried;
  std::string sequence;
  for (int i = 0; i < 3; ++i) {
    tried.push_back(cluster.pick(tried, kStart));
    sequence += letter(tried.back());
  }
  std::sort(sequence.begin(), sequence.end());
  CHECK(sequence == "abc");
  CHECK(cluster.pick(tried, kStart) == nullptr);
}

TEST_CASE("max_fails failures within fail_timeout bench an endpoint for fail_timeout", "[cluster]") {
  config::Backend backend = backend_of({1, 1});
  backend.servers[0].max_fails = 3;
  Cluster cluster(backend);
  Endpoint& a = *cluster.endpoints()[0];
  cluster.failed(a, kStart);
  cluster.failed(a, kStart + 4s);
  CHECK(picks(cluster, 2, kStart + 4s) == "ab");
  cluster.failed(a, kStart + 9s);
  CHECK(picks(cluster, 4, kStart + 9s) == "bbbb");
  CHECK(picks(cluster, 1, kStart + 18s) == "b");
  CHECK(picks(cluster, 4, kStart + 19s).find('a') != std::string::npos);
}

TEST_CASE("failures further apart than fail_timeout do not add up", "[cluster]") {
  config::Backend backend = backend_of({1, 1});
  backend.servers[0].max_fails = 2;
  Cluster cluster(backend);
  Endpoint& a = *cluster.endpoints()[0];
  for (int i = 0; i < 5; ++i) cluster.failed(a, kStart + i * 11s);
  CHECK(picks(cluster, 2, kStart + 44s) == "ab");
}

TEST_CASE("a success between two failures does not keep a failing endpoint in service", "[cluster]") {
  config::Backend backend = backend_of({1, 1});
  backend.servers[0].max_fails = 2;
  Cluster cluster(backend);
  Endpoint& a = *cluster.endpoints()[0];
  cluster.failed(a, kStart);
  cluster.succeeded(a);
  cluster.failed(a, kStart + 1s);
  CHECK(picks(cluster, 3, kStart + 1s) == "bbb");
}

TEST_CASE("max_fails 0 never benches", "[cluster]") {
  config::Backend backend = backend_of({1, 1});
  backend.servers[0].max_fails = 0;
  Cluster cluster(backend);
  for (int i = 0; i < 100; ++i) cluster.failed(*cluster.endpoints()[0], kStart);
  CHECK(picks(cluster, 4) == "abab");
}

TEST_CASE("after the bench one session tries the endpoint, the others wait for its verdict", "[cluster]") {
  config::Backend backend = backend_of({1, 1});
  Cluster cluster(backend);
  Endpoint& a = *cluster.endpoints()[0];
  cluster.failed(a, kStart);
  const TimePoint back = kStart + 10s;
  const std::string first = picks(cluster, 6, back);
  CHECK(std::count(first.begin(), first.end(), 'a') == 1);

  SECTION("a success takes it back") {
    cluster.succeeded(a);
    const std::string after = picks(cluster, 6, back);
    CHECK(std::count(after.begin(), after.end(), 'a') == 3);
  }
  SECTION("one more failure benches it again at once, whatever max_fails says") {
    cluster.failed(a, back + 3s);
    CHECK(picks(cluster, 4, back + 12s) == "bbbb");
    const std::string later = picks(cluster, 4, back + 13s);
    CHECK(std::count(later.begin(), later.end(), 'a') == 1);
  }
  SECTION("a session that ended without a verdict does not keep it benched for ever") {
    const std::string later = picks(cluster, 4, back + 10s);
    CHECK(std::count(later.begin(), later.end(), 'a') == 1);
  }
}

TEST_CASE("when every endpoint is benched, all are taken back", "[cluster]") {
  config::Backend backend = backend_of({1, 1, 1});
  backend.servers[2].down = true;
  Cluster cluster(backend);
  cluster.failed(*cluster.endpoints()[0], kStart);
  cluster.failed(*cluster.endpoints()[1], kStart);
  const std::string sequence = picks(cluster, 4, kStart + 1s);
  CHECK(std::count(sequence.begin(), sequence.end(), 'a') == 2);
  CHECK(std::count(sequence.begin(), sequence.end(), 'b') == 2);
}

TEST_CASE("a benched endpoint stays benched for a session that has tried all others", "[cluster]") {
  config::Backend backend = backend_of({1, 1});
  backend.servers[1].max_fails = 5;
  Cluster cluster(backend);
  cluster.failed(*cluster.endpoints()[0], kStart);
  const std::vector<EndpointPtr> tried{cluster.endpoints()[1]};
  CHECK(cluster.pick(tried, kStart) == nullptr);
  CHECK(picks(cluster, 3) == "bbb");
}

TEST_CASE("a server marked down is never picked", "[cluster]") {
  config::Backend backend = backend_of({1, 1});
  backend.servers[0].down = true;
  Cluster cluster(backend);
  CHECK(picks(cluster, 3) == "bbb");
  backend.servers[1].down = true;
  CHECK(picks(cluster, 1) == "-");
}

TEST_CASE("backups serve only while no primary is available", "[cluster]") {
  config::Backend backend = backend_of({1, 1, 1, 1});
  backend.servers[0].backup = true;
  backend.servers[1].backup = true;
  Cluster cluster(backend);
  CHECK(picks(cluster, 4) == "cdcd");
  const std::vector<EndpointPtr> primaries{cluster.endpoints()[2], cluster.endpoints()[3]};
  CHECK(letter(cluster.pick(primaries, kStart)) == 'a');
  cluster.failed(*primaries[0], kStart);
  cluster.failed(*primaries[1], kStart);
  CHECK(picks(cluster, 3) == "bab");
  CHECK(picks(cluster, 2, kStart + 10s).find_first_of("cd") == 0);
}

TEST_CASE("a name has no endpoint until it is resolved, and then its place in the order",
          "[cluster][resolved]") {
  config::Backend backend = backend_of({1, 1});
  backend.servers.insert(backend.servers.begin() + 1, named_server("db.example", 9));
  Cluster cluster(backend);
  CHECK(ports(cluster) == "192.0.2.1:1 192.0.2.1:2 ");
  cluster.resolved(backend.servers[1], addresses({"198.51.100.1:9", "[2001:db8::1]:9", "198.51.100.1:9"}));
  CHECK(ports(cluster) == "192.0.2.1:1 198.51.100.1:9 [2001:db8::1]:9 192.0.2.1:2 ");
  CHECK(cluster.endpoints()[2]->server == &backend.servers[1]);
}

TEST_CASE("resolving anew keeps the health and place of addresses that stay", "[cluster][resolved]") {
  config::Backend backend;
  backend.servers.push_back(named_server("db.example", 9));
  Cluster cluster(backend);
  CHECK(cluster.pick({}, kStart) == nullptr);
  cluster.resolved(backend.servers[0], addresses({"192.0.2.1:9", "192.0.2.2:9", "192.0.2.3:9"}));
  const std::vector<EndpointPtr> before = cluster.endpoints();
  cluster.failed(*before[1], kStart);
  cluster.resolved(backend.servers[0], addresses({"192.0.2.4:9", "192.0.2.2:9", "192.0.2.1:9"}));
  CHECK(ports(cluster) == "192.0.2.1:9 192.0.2.2:9 192.0.2.4:9 ");
  CHECK(cluster.endpoints()[0] == before[0]);
  CHECK(cluster.endpoints()[1] == before[1]);
  for (int i = 0; i < 4; ++i) CHECK(cluster.pick({}, kStart) != before[1]);
  cluster.resolved(backend.servers[0], {});
  CHECK(cluster.endpoints().size() == 3);
}

TEST_CASE("an endpoint lives on for its sessions after its address is gone", "[cluster][resolved]") {
  config::Backend backend;
  backend.servers.push_back(named_server("db.example", 9));
  Cluster cluster(backend);
  cluster.resolved(backend.servers[0], addresses({"192.0.2.1:9"}));
  const EndpointPtr held = cluster.pick({}, kStart);
  cluster.resolved(backend.servers[0], addresses({"192.0.2.2:9"}));
  cluster.failed(*held, kStart);
  CHECK(held->address.to_string() == "192.0.2.1:9");
  const std::vector<EndpointPtr> tried{held};
  CHECK(cluster.pick(tried, kStart)->address.to_string() == "192.0.2.2:9");
}

TEST_CASE("over one round each endpoint is picked as often as it weighs", "[cluster][model]") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<std::uint32_t> weights(1 + random() % 8);
    int sum = 0;
    for (std::uint32_t& weight : weights) {
      weight = static_cast<std::uint32_t>(1 + random() % 20);
      sum += static_cast<int>(weight);
    }
    const config::Backend backend = backend_of(weights);
    Cluster cluster(backend);
    for (int round = 0; round < 3; ++round) {
      const std::string sequence = picks(cluster, sum);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const auto times = std::count(sequence.begin(), sequence.end(), static_cast<char>('a' + i));
        CHECK(times == static_cast<std::ptrdiff_t>(weights[i]));
      }
    }
  }
}

TEST_CASE(
    "whatever happens, a pick is untried and not down, never a backup before an available primary, and only "
    "null when nothing is left",
    "[cluster][model]") {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    config::Backend backend = backend_of(std::vector<std::uint32_t>(1 + random() % 6, 1));
    for (config::Server& server : backend.servers) {
      server.backup = random() % 3 == 0;
      server.down = random() % 5 == 0;
      server.max_fails = static_cast<std::uint32_t>(random() % 4);
    }
    Cluster cluster(backend);
    TimePoint now = kStart;
    for (int session = 0; session < 300; ++session) {
      now += std::chrono::milliseconds(random() % 3000);
      std::vector<EndpointPtr> tried;
      for (;;) {
        const auto available = [&](const EndpointPtr& endpoint) {
          return !endpoint->server->down && now >= endpoint->benched_until &&
                 std::find(tried.begin(), tried.end(), endpoint) == tried.end();
        };
        const auto& all = cluster.endpoints();
        const bool any = std::any_of(all.begin(), all.end(), available);
        const bool primary = std::any_of(all.begin(), all.end(), [&](const EndpointPtr& endpoint) {
          return available(endpoint) && !endpoint->server->backup;
        });
        const EndpointPtr picked = cluster.pick(tried, now);
        REQUIRE((picked != nullptr || !any));
        if (picked == nullptr) break;
        REQUIRE(std::find(tried.begin(), tried.end(), picked) == tried.end());
        REQUIRE_FALSE(picked->server->down);
        if (primary) REQUIRE_FALSE(picked->server->backup);
        tried.push_back(picked);
        if (random() % 3 == 0) {
          cluster.succeeded(*picked);
          break;
        }
        cluster.failed(*picked, now);
      }
      REQUIRE(tried.size() <= backend.servers.size());
      const bool usable = std::any_of(backend.servers.begin(), backend.servers.end(),
                                      [](const config::Server& server) { return !server.down; });
      REQUIRE(tried.empty() == !usable);
    }
  }
}

}  // namespace tlsproxy::route
