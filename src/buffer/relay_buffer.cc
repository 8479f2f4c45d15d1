#include "buffer/relay_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tlsproxy::buffer {
namespace {

constexpr int kSmallReadsToShrink = 2;

BlockSize step(BlockSize size, int by) {
  return static_cast<BlockSize>(static_cast<int>(size) + by);
}

}  // namespace

RelayBuffer& RelayBuffer::operator=(RelayBuffer&& other) noexcept {
  TLSPROXY_CHECK(!block_, "a buffer that takes over another's block has none of its own");
  block_ = std::exchange(other.block_, {});
  head_ = std::exchange(other.head_, 0);
  tail_ = std::exchange(other.tail_, 0);
  wish_ = other.wish_;
  small_reads_ = other.small_reads_;
  capacities_ = other.capacities_;
  return *this;
}

RelayBuffer::~RelayBuffer() {
  TLSPROXY_DCHECK(!block_, "a block goes back to its pool");
}

bool RelayBuffer::prepare(BlockPool& pool, BlockPool::Purpose purpose) {
  check();
  if (block_ && (!empty() || block_.size == wish_)) return true;
  if (block_) pool.give_back(block_);
  block_ = pool.take(wish_, purpose);
  if (!block_) return false;
  capacities_ = {pool.capacity(BlockSize::small), pool.capacity(BlockSize::medium),
                 pool.capacity(BlockSize::large)};
  return true;
}

void RelayBuffer::commit(std::size_t bytes) {
  TLSPROXY_CHECK(bytes <= framed_room().size(), "nobody fills more than the room there is");
  tail_ += static_cast<std::uint32_t>(bytes);
  if (tail_ == block_.capacity || framed_room().empty()) {
    grow();
  } else {
    shrink_after_small(bytes);
  }
  check();
}

void RelayBuffer::grow() {
  small_reads_ = 0;
  // From the size it has, not from the wish: a block that the pool made smaller proves nothing more.
  if (block_.size == wish_ && wish_ != BlockSize::large) wish_ = step(wish_, 1);
}

void RelayBuffer::shrink_after_small(std::size_t bytes) {
  if (wish_ == BlockSize::small) return;
  const bool small = bytes <= capacities_[static_cast<std::size_t>(step(wish_, -1))];
  small_reads_ = small ? static_cast<std::uint8_t>(small_reads_ + 1) : std::uint8_t{0};
  if (small_reads_ < kSmallReadsToShrink) return;
  small_reads_ = 0;
  wish_ = step(wish_, -1);
}

void RelayBuffer::consume(std::size_t bytes) {
  TLSPROXY_CHECK(bytes <= pending().size(), "nobody writes more than is pending");
  head_ += static_cast<std::uint32_t>(bytes);
  if (empty()) head_ = tail_ = 0;
  check();
}

void RelayBuffer::release(BlockPool& pool) {
  if (block_ && empty()) pool.give_back(block_);
}

void RelayBuffer::discard(BlockPool& pool) {
  head_ = tail_ = 0;
  release(pool);
}

bool RelayBuffer::enlarge(BlockPool& pool) {
  if (!block_ || block_.size == BlockSize::large) return false;
  Block larger = pool.take(step(block_.size, 1));
  if (!larger) return false;
  if (larger.capacity <= block_.capacity) {
    pool.give_back(larger);
    return false;
  }
  move_to(pool, larger);
  return true;
}

bool RelayBuffer::gather(BlockPool& pool, std::size_t whole) {
  BlockSize fitting = block_.size;
  while (pool.capacity(fitting) + BlockPool::kFraming < whole && fitting != BlockSize::large) {
    fitting = step(fitting, 1);
  }
  Block larger;
  if (const BlockSize best = std::max(fitting, wish_); best > block_.size) larger = pool.take(best);
  if (larger && (larger.size < fitting || larger.size == block_.size)) pool.give_back(larger);
  if (!larger && fitting > block_.size) {
    larger = pool.take(fitting, BlockPool::Purpose::whole);
    if (!larger) return false;
  }
  if (larger) {
    move_to(pool, larger);
  } else if (head_ > 0) {
    std::memmove(block_.data, block_.data + head_, tail_ - head_);
    tail_ -= std::exchange(head_, 0);
  }
  check();
  return true;
}

// Copies the pending bytes to the front of `other`, which becomes the block; the one of before goes back.
void RelayBuffer::move_to(BlockPool& pool, Block& other) {
  const std::span<const std::byte> bytes = pending();
  std::memcpy(other.data, bytes.data(), bytes.size());
  head_ = 0;
  tail_ = static_cast<std::uint32_t>(bytes.size());
  std::swap(block_, other);
  pool.give_back(other);
  check();
}

void RelayBuffer::check() const {
  TLSPROXY_DCHECK(head_ <= tail_ && (!block_ || tail_ <= block_.capacity + BlockPool::kFraming),
                  "head, tail and the block's end are in this order");
  TLSPROXY_DCHECK(head_ < tail_ || head_ == 0, "an empty buffer starts at the front of its block");
}

}  // namespace tlsproxy::buffer
