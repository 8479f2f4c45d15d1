// BlockPool: the memory of the relay, in blocks of three sizes, within one budget.
//
// A block is taken when bytes arrive and given back when they are gone; free blocks are kept for the
// next taker, so that relaying allocates nothing once it runs. When the budget is spent, a smaller
// block is offered, then none: who gets none joins the waiters and is called when one comes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/intrusive_list.h"

namespace tlsproxy::buffer {

enum class BlockSize : std::uint8_t { small, medium, large };

constexpr int kBlockSizes = 3;

// A block on loan; empty (data null) when none was given. The holder gives it back to its pool.
struct Block {
  std::byte* data = nullptr;
  std::uint32_t capacity = 0;
  BlockSize size = BlockSize::small;
  explicit operator bool() const { return data != nullptr; }
};

struct WaiterTag;

// Someone whose block was refused.
class BlockWaiter : public base::Hook<WaiterTag> {
 public:
  // Called when a block came back; the waiter is off the list. It may take blocks or wait again.
  virtual void block_available() = 0;

 protected:
  ~BlockWaiter() = default;
};

class BlockPool {
 public:
  // Bytes per block of each size. Parameters, so that tests reach every edge with tiny ones.
  using Capacities = std::array<std::uint32_t, kBlockSizes>;
  static constexpr Capacities kCapacities{4096, 32768, 65536};

  // Every block is this much larger than its capacity, so that a block full of plaintext fits, encrypted,
  // into a block of the same size: 4 records of 16 KiB with at most 85 bytes of framing each (a 5-byte
  // header, and under CBC with SHA-384 a 16-byte IV, 48 of MAC, 16 of padding; RFC 5246, 6.2.3).
  static constexpr std::uint32_t kFraming = 512;

  explicit BlockPool(std::size_t budget_bytes, const Capacities& capacities = kCapacities);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // What a block is for. Bytes that are in memory already and need a block to move on (ciphertext to
  // decrypt, plaintext to encrypt) may exceed the budget by small blocks: if they too were refused, every
  // session could hold one block and wait for a second one for ever. Each such block is matched by one
  // within the budget, so the excess is bounded by it. The beginning of a TLS record is of no use until the
  // rest of it is there too: a block to hold a whole one is never smaller than wished, and may exceed the
  // budget by as much as a TLS library's own buffer for it would.
  enum class Purpose : std::uint8_t { fill, move_on, whole };

  // A block of `wish` or, when the budget does not allow it, a smaller one (except for `whole`); an empty one
  // at the end of the budget or of memory. Never throws.
  Block take(BlockSize wish, Purpose purpose = Purpose::fill);

  // Takes `block` back, empties the caller's handle and calls the first waiter. Given back from within
  // block_available(), the next waiter's call comes after that one has returned.
  void give_back(Block& block);

  // Puts `waiter` at the end of the waiters' list; no effect when it is there.
  void wait(BlockWaiter& waiter);

  // Frees the blocks that were free all the time since the last call. The worker calls it now and then,
  // so that memory follows the load down as well as up. When there is room it also calls a waiter: one
  // called before may have died without taking its block, and then nobody would give one back.
  void trim();

  // A new budget, from the next take() on. A smaller one takes no block from anybody.
  void set_budget(std::size_t budget_bytes) { budget_ = budget_bytes; }

  [[nodiscard]] std::uint32_t capacity(BlockSize size) const { return capacities_[index(size)]; }
  [[nodiscard]] std::size_t bytes_in_use() const { return in_use_; }
  [[nodiscard]] std::size_t bytes_held() const { return held_; }  // in use and free

 private:
  static std::size_t index(BlockSize size) { return static_cast<std::size_t>(size); }
  Block lend(std::size_t size, std::byte* data);
  std::byte* take_free(std::size_t size);
  std::byte* allocate(std::size_t size);
  // Frees free blocks, the largest first, until `bytes` more fit the budget; none when they cannot.
  bool make_room(std::size_t bytes);
  // Frees the `count` free blocks of this size that were used longest ago.
  void release(std::size_t size, std::size_t count);
  void call_waiter();

  Capacities capacities_;
  std::size_t budget_;
  std::size_t in_use_ = 0;
  std::size_t held_ = 0;
  std::array<std::vector<std::byte*>, kBlockSizes> free_;
  std::array<std::size_t, kBlockSizes> blocks_{};       // in use and free
  std::array<std::size_t, kBlockSizes> fewest_free_{};  // since the last trim
  base::IntrusiveList<BlockWaiter, WaiterTag> waiters_;
  std::size_t calls_due_ = 0;  // blocks given back while a waiter was being called
  bool calling_ = false;
};

}  // namespace tlsproxy::buffer
