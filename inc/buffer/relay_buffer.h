// RelayBuffer: the bytes of one direction that were read and not yet written.
//
//   block: |  written  |  pending  |   room   |
//          0         head        tail      capacity
//
// It holds at most one block, and should hold none while empty: prepare() takes one when bytes are about
// to arrive, release() gives it back when they are gone. Pending bytes keep their address until they are
// consumed or the holder asks for another place, and a block's size changes only while it is empty or on such
// a demand. Growth is a remembered wish: a block filled to its end makes the next one a size larger, two
// small reads in a row make it a size smaller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "buffer/block_pool.h"

namespace tlsproxy::buffer {

class RelayBuffer {
 public:
  RelayBuffer() = default;
  RelayBuffer(RelayBuffer&& other) noexcept { *this = static_cast<RelayBuffer&&>(other); }
  RelayBuffer& operator=(RelayBuffer&& other) noexcept;  // *this must hold no block
  RelayBuffer(const RelayBuffer&) = delete;
  RelayBuffer& operator=(const RelayBuffer&) = delete;
  ~RelayBuffer();  // must hold no block: it does not know its pool

  [[nodiscard]] bool empty() const { return head_ == tail_; }
  [[nodiscard]] bool has_block() const { return static_cast<bool>(block_); }
  [[nodiscard]] std::span<const std::byte> pending() const { return {block_.data + head_, tail_ - head_}; }
  [[nodiscard]] std::span<std::byte> room() const { return {block_.data + tail_, block_.capacity - tail_}; }

  // room() and the framing beyond it, for ciphertext: what a peer made of a block full of plaintext is one
  // read, not one and a rest.
  [[nodiscard]] std::span<std::byte> framed_room() const {
    return {block_.data + tail_, block_.capacity + BlockPool::kFraming - tail_};
  }

  // pending(), to be changed in place.
  [[nodiscard]] std::span<std::byte> pending_to_change() { return {block_.data + head_, tail_ - head_}; }

  // Makes sure that there is a block, and of the wished size if the buffer is empty. False when the
  // pool refused: then nothing has changed.
  bool prepare(BlockPool& pool, BlockPool::Purpose purpose = BlockPool::Purpose::fill);

  // The first `bytes` of room() or framed_room() were filled by one read.
  void commit(std::size_t bytes);

  // The source has more bytes at hand than fitted (plaintext inside OpenSSL): grow as if filled.
  void note_more_at_hand() { grow(); }

  // `bytes` arrived that took another way (splice): grow or shrink as after a read of that size.
  void note_passed_by(std::size_t bytes) { shrink_after_small(bytes); }

  // The first `bytes` of pending() were written.
  void consume(std::size_t bytes);

  // Gives the block back if the buffer is empty; pending bytes keep it.
  void release(BlockPool& pool);

  // Drops pending bytes and the block.
  void discard(BlockPool& pool);

  // Brings the pending bytes, the beginning of a unit of `whole` bytes (a TLS record), to the front of a
  // block in whose framed room all of it fits: the same or a larger one, of the wished size if the pool has
  // it. False when there is none: then nothing has changed.
  bool gather(BlockPool& pool, std::size_t whole);

  // Moves the pending bytes to a block of the next size, by copying: for a window that must be whole to
  // be parsed (the ClientHello), never for relayed bytes. False when it is the largest already or the
  // pool refused a larger one.
  bool enlarge(BlockPool& pool);

  [[nodiscard]] BlockSize wish() const { return wish_; }

 private:
  void grow();
  void shrink_after_small(std::size_t bytes);
  void move_to(BlockPool& pool, Block& other);
  void check() const;

  Block block_;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  BlockSize wish_ = BlockSize::small;
  std::uint8_t small_reads_ = 0;
  std::array<std::uint32_t, kBlockSizes> capacities_{};  // the pool's, learned with the first block
};

}  // namespace tlsproxy::buffer
