#include "buffer/relay_buffer.h"

#include <cstring>
#include <random>
#include <string>

#include "support/catch.h"
#include "support/sockets.h"

using namespace tlsproxy;
using buffer::BlockPool;
using buffer::BlockSize;
using buffer::RelayBuffer;

namespace {

constexpr BlockPool::Capacities kTiny{16, 32, 64};
constexpr std::size_t kPlenty = 1U << 20;

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void fill(RelayBuffer& buffer, std::string_view bytes) {
  std::memcpy(buffer.room().data(), bytes.data(), bytes.size());
  buffer.commit(bytes.size());
}

// One read of `bytes` into an empty buffer, written out again.
void pass(RelayBuffer& buffer, BlockPool& pool, std::size_t bytes) {
  REQUIRE(buffer.prepare(pool));
  fill(buffer, std::string(bytes, 'x'));
  buffer.consume(bytes);
  buffer.release(pool);
}

}  // namespace

TEST_CASE("an empty buffer owns nothing", "[relay_buffer]") {
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  CHECK_FALSE(buffer.has_block());
  pass(buffer, pool, 5);
  CHECK_FALSE(buffer.has_block());
  CHECK(pool.bytes_in_use() == 0);
}

TEST_CASE("a block filled to its end makes the next one larger, up to the largest", "[relay_buffer]") {
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  pass(buffer, pool, 16);
  CHECK(buffer.wish() == BlockSize::medium);
  pass(buffer, pool, 32);
  CHECK(buffer.wish() == BlockSize::large);
  pass(buffer, pool, 64);
  CHECK(buffer.wish() == BlockSize::large);
}

TEST_CASE("ciphertext may fill a block beyond its capacity by the framing", "[relay_buffer]") {
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  REQUIRE(buffer.prepare(pool));
  CHECK(buffer.framed_room().size() == 16 + BlockPool::kFraming);

  const auto fill_framed = [&buffer](std::size_t bytes) {
    std::memset(buffer.framed_room().data(), 'x', bytes);
    buffer.commit(bytes);
  };
  fill_framed(20);
  CHECK(buffer.pending().size() == 20);
  CHECK(buffer.wish() == BlockSize::small);
  buffer.consume(20);
  fill_framed(16 + BlockPool::kFraming);
  CHECK(buffer.wish() == BlockSize::medium);
  buffer.discard(pool);
}

TEST_CASE("bytes left at the source make the next block larger as a full one does", "[relay_buffer]") {
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  REQUIRE(buffer.prepare(pool));
  fill(buffer, "abc");
  buffer.note_more_at_hand();
  CHECK(buffer.wish() == BlockSize::medium);
  buffer.discard(pool);
}

TEST_CASE("two small reads in a row make the next block smaller, one does not", "[relay_buffer]") {
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  pass(buffer, pool, 16);
  pass(buffer, pool, 32);
  pass(buffer, pool, 3);
  pass(buffer, pool, 40);
  pass(buffer, pool, 3);
  CHECK(buffer.wish() == BlockSize::large);
  pass(buffer, pool, 3);
  CHECK(buffer.wish() == BlockSize::medium);
  pass(buffer, pool, 3);
  pass(buffer, pool, 3);
  CHECK(buffer.wish() == BlockSize::small);
}

TEST_CASE("pending bytes keep their address until they are consumed", "[relay_buffer]") {
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  REQUIRE(buffer.prepare(pool));
  fill(buffer, "0123456789abcdef");
  const std::byte* const at = buffer.pending().data();
  buffer.consume(4);
  REQUIRE(buffer.prepare(pool));  // the wish is larger now, but the buffer is not empty
  CHECK(buffer.pending().data() == at + 4);
  CHECK(text(buffer.pending()) == "456789abcdef");
  buffer.discard(pool);
}

TEST_CASE("a refused block changes nothing", "[relay_buffer]") {
  BlockPool pool(16, kTiny);
  RelayBuffer first, second;
  REQUIRE(first.prepare(pool));
  CHECK_FALSE(second.prepare(pool));
  CHECK_FALSE(second.has_block());
  CHECK(second.prepare(pool, BlockPool::Purpose::move_on));
  second.release(pool);
  first.release(pool);
  CHECK(second.prepare(pool));
  second.release(pool);
}

TEST_CASE("a block smaller than wished does not raise the wish further", "[relay_buffer]") {
  BlockPool pool(16, kTiny);
  RelayBuffer buffer;
  pass(buffer, pool, 16);
  REQUIRE(buffer.wish() == BlockSize::medium);
  pass(buffer, pool, 16);
  CHECK(buffer.wish() == BlockSize::medium);
}

TEST_CASE("gathering brings a unit together, in the same block or one that holds all of it",
          "[relay_buffer]") {
  constexpr BlockPool::Capacities kSizes{600, 1200, 2400};
  BlockPool pool(kPlenty, kSizes);
  RelayBuffer buffer;
  REQUIRE(buffer.prepare(pool));
  fill(buffer, std::string(500, '.') + "begun");
  buffer.consume(500);
  const std::byte* const before = buffer.pending().data();
  REQUIRE(buffer.gather(pool, 600 + BlockPool::kFraming));
  CHECK(text(buffer.pending()) == "begun");
  CHECK(buffer.pending().data() == before - 500);
  CHECK(buffer.framed_room().size() == 600 + BlockPool::kFraming - 5);

  REQUIRE(buffer.gather(pool, 600 + BlockPool::kFraming + 1));
  CHECK(text(buffer.pending()) == "begun");
  CHECK(buffer.framed_room().size() == 1200 + BlockPool::kFraming - 5);
  REQUIRE(buffer.gather(pool, 2400));
  CHECK(buffer.framed_room().size() == 2400 + BlockPool::kFraming - 5);
  CHECK(pool.bytes_in_use() == 2400);
  buffer.discard(pool);
}

TEST_CASE("gathering follows the wish for a larger block when the pool has one", "[relay_buffer]") {
  BlockPool pool(64 + 32, kTiny);
  RelayBuffer buffer;
  REQUIRE(buffer.prepare(pool));
  fill(buffer, std::string(16, 'x'));
  buffer.consume(15);
  REQUIRE(buffer.wish() == BlockSize::medium);
  buffer::Block taken = pool.take(BlockSize::large);
  REQUIRE(taken.size == BlockSize::large);
  REQUIRE(buffer.gather(pool, 10));
  CHECK(buffer.room().size() == 15);
  pool.give_back(taken);
  REQUIRE(buffer.gather(pool, 10));
  CHECK(buffer.room().size() == 31);
  buffer.discard(pool);
}

TEST_CASE("a unit that must be whole gets its block beyond the budget", "[relay_buffer]") {
  constexpr BlockPool::Capacities kSizes{600, 1200, 2400};
  BlockPool pool(600, kSizes);
  RelayBuffer buffer;
  REQUIRE(buffer.prepare(pool));
  fill(buffer, "begun");
  REQUIRE(buffer.gather(pool, 1500));
  CHECK(text(buffer.pending()) == "begun");
  CHECK(pool.bytes_in_use() == 1200);
  buffer.discard(pool);
}

TEST_CASE("enlarging keeps the bytes and makes room, until the largest block", "[relay_buffer]") {
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  REQUIRE(buffer.prepare(pool));
  fill(buffer, "0123456789abcdef");
  REQUIRE(buffer.enlarge(pool));
  CHECK(text(buffer.pending()) == "0123456789abcdef");
  CHECK(buffer.room().size() == 16);
  REQUIRE(buffer.enlarge(pool));
  CHECK_FALSE(buffer.enlarge(pool));
  buffer.discard(pool);
  CHECK(pool.bytes_in_use() == 0);
}

TEST_CASE("a buffer under random operations is a string that is appended to and cut in front",
          "[relay_buffer]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 21));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  BlockPool pool(kPlenty, kTiny);
  RelayBuffer buffer;
  std::string model;
  for (int step = 0; step < 5000; ++step) {
    switch (random() % 6) {
      case 0:
      case 1: {
        REQUIRE(buffer.prepare(pool));
        const std::size_t room = buffer.room().size();
        if (room == 0) break;
        const std::string bytes = support::pattern(1 + random() % room, random());
        fill(buffer, bytes);
        model += bytes;
        break;
      }
      case 2:
      case 3: {
        if (model.empty()) break;
        const std::size_t bytes = 1 + random() % model.size();
        buffer.consume(bytes);
        model.erase(0, bytes);
        break;
      }
      case 4:
        buffer.release(pool);
        CHECK(buffer.has_block() == (pool.bytes_in_use() > 0));
        break;
      default: {
        if (buffer.has_block() && random() % 4 == 0) static_cast<void>(buffer.enlarge(pool));
        RelayBuffer moved(std::move(buffer));
        buffer = std::move(moved);
      }
    }
    REQUIRE(buffer.empty() == model.empty());
    if (!model.empty()) REQUIRE(text(buffer.pending()) == model);
  }
  buffer.discard(pool);
  CHECK(pool.bytes_in_use() == 0);
}
