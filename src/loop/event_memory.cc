#include "loop/event_memory.h"

#include <event2/event.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace tlsproxy::loop {
namespace {

constexpr std::size_t kPiece = 32;  // an entry of a descriptor has 16 bytes in libevent 2.1
constexpr std::size_t kChunk = 65536;

// Pieces of chunks that are aligned to their size, so that the address of a piece tells its chunk.
class Pieces {
 public:
  void* take() {
    if (free_ == nullptr && !add_chunk()) return nullptr;
    Free* piece = free_;
    free_ = piece->next;
    return piece;
  }

  void give_back(void* piece) { free_ = new (piece) Free{free_}; }

  [[nodiscard]] bool owns(const void* memory) const {
    const auto chunk = reinterpret_cast<std::uintptr_t>(memory) / kChunk * kChunk;
    return std::any_of(chunks_.begin(), chunks_.end(), [chunk](const std::byte* each) {
      return reinterpret_cast<std::uintptr_t>(each) == chunk;
    });
  }

  [[nodiscard]] std::size_t bytes() const { return chunks_.size() * kChunk; }

 private:
  struct Free {
    Free* next;
  };

  bool add_chunk() {
    auto* chunk = static_cast<std::byte*>(std::aligned_alloc(kChunk, kChunk));
    if (chunk == nullptr) return false;
    try {
      chunks_.push_back(chunk);
    } catch (const std::bad_alloc&) {
      std::free(chunk);
      return false;
    }
    for (std::size_t offset = kChunk; offset > 0; offset -= kPiece) give_back(chunk + offset - kPiece);
    return true;
  }

  std::vector<std::byte*> chunks_;
  Free* free_ = nullptr;
};

// For the life of the process: libevent frees some of it after every destructor.
Pieces& pieces() {
  static auto* const all = new Pieces;
  return *all;
}

void* allocate(std::size_t size) {
  return size <= kPiece ? pieces().take() : std::malloc(size);
}

void release(void* memory) {
  if (memory != nullptr && pieces().owns(memory)) return pieces().give_back(memory);
  std::free(memory);
}

void* reallocate(void* memory, std::size_t size) {
  if (memory == nullptr) return allocate(size);
  if (!pieces().owns(memory)) return std::realloc(memory, std::max<std::size_t>(size, 1));
  if (size <= kPiece) return memory;
  void* larger = std::malloc(size);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, memory, kPiece);
  pieces().give_back(memory);
  return larger;
}

}  // namespace

void keep_event_memory_apart() {
  static const bool once = [] {
    event_set_mem_functions(&allocate, &reallocate, &release);
    return true;
  }();
  static_cast<void>(once);
}

std::size_t event_memory_bytes() {
  return pieces().bytes();
}

}  // namespace tlsproxy::loop
