#include "server/respawn.h"

#include "support/catch.h"

using namespace std::chrono_literals;
using tlsproxy::server::RespawnBackoff;

TEST_CASE("a worker that lived is replaced at once", "[respawn]") {
  RespawnBackoff backoff;
  CHECK(backoff.died(5s) == 0ms);
  CHECK(backoff.died(24h) == 0ms);
}

TEST_CASE("the pause doubles with each worker that dies young, up to half a minute", "[respawn]") {
  RespawnBackoff backoff;
  for (const auto pause : {100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 6400ms, 12800ms, 25600ms}) {
    CHECK(backoff.died(4999ms) == pause);
  }
  CHECK(backoff.died(0ms) == 30s);
  CHECK(backoff.died(0ms) == 30s);
}

TEST_CASE("one that lived makes the pause short again", "[respawn]") {
  RespawnBackoff backoff;
  backoff.died(0ms);
  backoff.died(0ms);
  CHECK(backoff.died(10s) == 0ms);
  CHECK(backoff.died(0ms) == 100ms);
}
