#include "buffer/block_pool.h"

#include <malloc.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace tlsproxy::buffer {
namespace {

// malloc_trim walks the whole heap: only for an amount that is worth the walk.
constexpr std::size_t kWorthReturning = std::size_t{1024} * 1024;

}  // namespace

BlockPool::BlockPool(std::size_t budget_bytes, const Capacities& capacities)
    : capacities_(capacities), budget_(budget_bytes) {
  TLSPROXY_CHECK(capacities_[0] > 0 && capacities_[0] < capacities_[1] && capacities_[1] < capacities_[2],
                 "block sizes grow from small to large");
}

BlockPool::~BlockPool() {
  TLSPROXY_DCHECK(in_use_ == 0, "every block is back before its pool goes");
  for (std::size_t size = 0; size < kBlockSizes; ++size) release(size, free_[size].size());
}

Block BlockPool::take(BlockSize wish, Purpose purpose) {
  const std::size_t smallest = purpose == Purpose::whole ? index(wish) : 0;
  for (std::size_t size = index(wish) + 1; size-- > smallest;) {
    std::byte* data = take_free(size);
    if (data == nullptr && make_room(capacities_[size])) data = allocate(size);
    if (data != nullptr) return lend(size, data);
  }
  if (purpose == Purpose::fill) return Block{};
  std::byte* data = allocate(smallest);
  return data == nullptr ? Block{} : lend(smallest, data);
}

Block BlockPool::lend(std::size_t size, std::byte* data) {
  in_use_ += capacities_[size];
  return Block{data, capacities_[size], static_cast<BlockSize>(size)};
}

void BlockPool::give_back(Block& block) {
  const std::size_t size = index(block.size);
  TLSPROXY_CHECK(block && block.capacity == capacities_[size] && in_use_ >= block.capacity,
                 "a block given back was taken from this pool");
  TLSPROXY_DCHECK(std::find(free_[size].begin(), free_[size].end(), block.data) == free_[size].end(),
                  "a block is given back once");
  ASAN_POISON_MEMORY_REGION(block.data, block.capacity + kFraming);
  free_[size].push_back(block.data);  // allocate() made the room
  in_use_ -= block.capacity;
  block = Block{};
  call_waiter();
}

void BlockPool::wait(BlockWaiter& waiter) {
  if (!waiter.linked()) waiters_.push_back(waiter);
}

void BlockPool::trim() {
  const std::size_t held_before = held_;
  for (std::size_t size = 0; size < kBlockSizes; ++size) {
    release(size, fewest_free_[size]);
    fewest_free_[size] = free_[size].size();
  }
  if (held_before - held_ >= kWorthReturning) ::malloc_trim(0);
  if (in_use_ + capacities_[0] <= budget_) call_waiter();
}

std::byte* BlockPool::take_free(std::size_t size) {
  auto& free = free_[size];
  if (free.empty()) return nullptr;
  std::byte* data = free.back();
  free.pop_back();
  fewest_free_[size] = std::min(fewest_free_[size], free.size());
  ASAN_UNPOISON_MEMORY_REGION(data, capacities_[size] + kFraming);
  return data;
}

std::byte* BlockPool::allocate(std::size_t size) {
  // The free list gets its room here, so that giving back never allocates and cannot fail.
  auto& free = free_[size];
  if (blocks_[size] == free.capacity()) {
    try {
      free.reserve(std::max<std::size_t>(16, 2 * free.capacity()));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  auto* data = static_cast<std::byte*>(std::malloc(capacities_[size] + kFraming));
  if (data == nullptr) return nullptr;
  ++blocks_[size];
  held_ += capacities_[size];
  return data;
}

bool BlockPool::make_room(std::size_t bytes) {
  if (in_use_ + bytes > budget_) return false;
  for (std::size_t size = kBlockSizes; size-- > 0;) {
    while (held_ + bytes > budget_ && !free_[size].empty()) release(size, 1);
  }
  return true;
}

void BlockPool::release(std::size_t size, std::size_t count) {
  auto& free = free_[size];
  TLSPROXY_DCHECK(count <= free.size(), "only free blocks are released");
  const auto end = free.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto block = free.begin(); block != end; ++block) {
    ASAN_UNPOISON_MEMORY_REGION(*block, capacities_[size] + kFraming);
    std::free(*block);
  }
  free.erase(free.begin(), end);
  blocks_[size] -= count;
  held_ -= count * capacities_[size];
  fewest_free_[size] = std::min(fewest_free_[size], free.size());
}

void BlockPool::call_waiter() {
  if (waiters_.empty()) return;
  ++calls_due_;
  if (calling_) return;
  calling_ = true;
  while (calls_due_ > 0 && !waiters_.empty()) {
    --calls_due_;
    waiters_.pop_front().block_available();
  }
  calls_due_ = 0;
  calling_ = false;
}

}  // namespace tlsproxy::buffer
