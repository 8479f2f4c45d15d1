// OutgoingBlocks, IncomingBlocks: a stream as a row of equal blocks that can be told apart.
//
//   block k:  | k (8 bytes) |   whatever the buffer holds   | k (8 bytes) |
//
// The first and last 8 bytes carry the block's number, little-endian (a block under 16 bytes only the
// first, one under 8 as much of it as fits). Numbers count up from one that differs between
// connections, so that lost, repeated, reordered or mixed up bytes are found without a look at each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tlsproxy::load {

constexpr std::size_t kMarkSize = 8;

// Blocks of streams in one direction, and how many of them the sink acknowledges at once: each
// acknowledgement is a block of 8 bytes, numbered from kFirstAcknowledgement.
constexpr std::size_t kStreamBlock = std::size_t{64} * 1024;
constexpr std::size_t kAcknowledgedBytes = std::size_t{1024} * 1024;
constexpr std::uint64_t kFirstAcknowledgement = 1;

// What asks for an answer: a block as long as a short HTTP request.
constexpr std::size_t kRequestSize = 64;

// The first block's number for the connection with this index.
constexpr std::uint64_t first_block(std::uint64_t connection) {
  return (connection + 1) << 32;
}

class OutgoingBlocks {
 public:
  OutgoingBlocks(std::size_t block_size, std::uint64_t first) : block_size_(block_size), number_(first) {}

  // The rest of the current block. `block` holds block_size bytes that all connections share: the marks
  // are put there now, so it is to be sent before anyone else calls this.
  [[nodiscard]] std::span<const std::uint8_t> rest(std::span<std::uint8_t> block) const;

  // Passes over `bytes` of the current block, at most its rest. True when that was its end.
  bool sent(std::size_t bytes);

 private:
  std::size_t block_size_;
  std::uint64_t number_;
  std::size_t offset_ = 0;
};

class IncomingBlocks {
 public:
  struct Taken {
    std::uint64_t blocks = 0;  // ended in these bytes
    std::uint64_t marks = 0;   // compared
    std::uint64_t wrong = 0;   // of them, other than they should be
  };

  IncomingBlocks(std::size_t block_size, std::uint64_t first);

  // The first number is not known: it is what the first block begins with. Needs blocks of 8 bytes.
  static IncomingBlocks of_unknown_origin(std::size_t block_size);

  Taken take(std::span<const std::uint8_t> bytes);

  // Whether the last byte taken was the last of a block (or none was taken yet).
  [[nodiscard]] bool at_edge() const { return offset_ == 0; }

 private:
  std::size_t take_mark(std::size_t from, std::size_t size, std::span<const std::uint8_t> bytes,
                        Taken& taken);

  std::size_t block_size_;
  std::size_t head_size_;
  std::size_t tail_at_;  // block_size_ when there is no second mark
  std::uint64_t number_;
  std::size_t offset_ = 0;
  bool learning_ = false;
  bool mark_is_wrong_ = false;
};

}  // namespace tlsproxy::load
