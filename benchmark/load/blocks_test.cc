#include "blocks.h"

#include <algorithm>
#include <random>
#include <vector>

#include "support/catch.h"

using tlsproxy::load::first_block;
using tlsproxy::load::IncomingBlocks;
using tlsproxy::load::OutgoingBlocks;

namespace {

using Bytes = std::vector<std::uint8_t>;

// What a sender of `count` blocks writes, in pieces of `piece` bytes.
Bytes stream_of(std::size_t block_size, std::uint64_t first, int count, std::size_t piece) {
  Bytes block(block_size, 0xee);
  OutgoingBlocks outgoing(block_size, first);
  Bytes stream;
  for (int ended = 0; ended < count;) {
    const auto rest = outgoing.rest(block);
    const auto bytes = rest.first(std::min(rest.size(), piece));
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    ended += outgoing.sent(bytes.size()) ? 1 : 0;
  }
  return stream;
}

IncomingBlocks::Taken take_in_pieces(IncomingBlocks& incoming, const Bytes& stream, std::size_t piece) {
  IncomingBlocks::Taken sum;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    const auto taken = incoming.take(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
    sum.blocks += taken.blocks;
    sum.marks += taken.marks;
    sum.wrong += taken.wrong;
  }
  return sum;
}

}  // namespace

TEST_CASE("blocks are recognised however they were cut on the way", "[blocks]") {
  for (const std::size_t block_size : {1UL, 5UL, 8UL, 15UL, 16UL, 17UL, 64UL, 1000UL}) {
    const std::uint64_t marks_each = block_size >= 16 ? 2 : 1;
    for (const std::size_t written : {1UL, 3UL, 7UL, 64UL, 5000UL}) {
      const Bytes stream = stream_of(block_size, first_block(3), 20, written);
      REQUIRE(stream.size() == 20 * block_size);
      for (const std::size_t read : {1UL, 2UL, 9UL, 100UL, 100'000UL}) {
        IncomingBlocks incoming(block_size, first_block(3));
        const auto taken = take_in_pieces(incoming, stream, read);
        REQUIRE(taken.blocks == 20);
        REQUIRE(taken.marks == 20 * marks_each);
        REQUIRE(taken.wrong == 0);
        REQUIRE(incoming.at_edge());
      }
    }
  }
}

TEST_CASE("a lost, repeated or foreign block is found", "[blocks]") {
  const Bytes stream = stream_of(64, first_block(0), 10, 64);
  Bytes other;
  SECTION("lost") {
    other = stream;
    other.erase(other.begin() + 128, other.begin() + 192);
  }
  SECTION("repeated") {
    other = stream;
    other.insert(other.begin() + 128, stream.begin() + 64, stream.begin() + 128);
  }
  SECTION("of another connection") {
    other = stream_of(64, first_block(1), 10, 64);
  }
  SECTION("one byte lost") {
    other = stream;
    other.erase(other.begin() + 200);
  }
  IncomingBlocks incoming(64, first_block(0));
  CHECK(take_in_pieces(incoming, other, 50).wrong > 0);
}

TEST_CASE("a wrong byte in either mark is found", "[blocks]") {
  for (const std::size_t at : {0UL, 7UL, 56UL, 63UL}) {
    Bytes stream = stream_of(64, 5, 1, 64);
    stream[at] ^= 1;
    IncomingBlocks incoming(64, 5);
    CHECK(take_in_pieces(incoming, stream, 3).wrong == 1);
  }
}

TEST_CASE("a receiver of unknown origin takes the first number for granted, and no other", "[blocks]") {
  Bytes stream = stream_of(64, 0x0123456789abcdef, 10, 64);
  SECTION("all in order") {
    auto incoming = IncomingBlocks::of_unknown_origin(64);
    const auto taken = take_in_pieces(incoming, stream, 5);
    CHECK(taken.blocks == 10);
    CHECK(taken.marks == 19);
    CHECK(taken.wrong == 0);
  }
  SECTION("the second block lost") {
    stream.erase(stream.begin() + 64, stream.begin() + 128);
    auto incoming = IncomingBlocks::of_unknown_origin(64);
    CHECK(take_in_pieces(incoming, stream, 5).wrong > 0);
  }
}
