#include "blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tlsproxy::load {
namespace {

using Mark = std::array<std::uint8_t, kMarkSize>;

Mark mark_of(std::uint64_t number) {
  Mark mark;
  for (std::size_t i = 0; i < mark.size(); ++i) mark[i] = static_cast<std::uint8_t>(number >> (8 * i));
  return mark;
}

bool has_tail(std::size_t block_size) {
  return block_size >= 2 * kMarkSize;
}

}  // namespace

std::span<const std::uint8_t> OutgoingBlocks::rest(std::span<std::uint8_t> block) const {
  const Mark mark = mark_of(number_);
  std::copy_n(mark.begin(), std::min(kMarkSize, block_size_), block.begin());
  if (has_tail(block_size_)) std::memcpy(&block[block_size_ - kMarkSize], mark.data(), kMarkSize);
  return block.subspan(offset_, block_size_ - offset_);
}

bool OutgoingBlocks::sent(std::size_t bytes) {
  offset_ += bytes;
  if (offset_ < block_size_) return false;
  offset_ = 0;
  number_ += 1;
  return true;
}

IncomingBlocks::IncomingBlocks(std::size_t block_size, std::uint64_t first)
    : block_size_(block_size),
      head_size_(std::min(kMarkSize, block_size)),
      tail_at_(has_tail(block_size) ? block_size - kMarkSize : block_size),
      number_(first) {}

IncomingBlocks IncomingBlocks::of_unknown_origin(std::size_t block_size) {
  IncomingBlocks blocks(block_size, 0);
  blocks.learning_ = true;
  return blocks;
}

IncomingBlocks::Taken IncomingBlocks::take(std::span<const std::uint8_t> bytes) {
  Taken taken;
  while (!bytes.empty()) {
    std::size_t step = 0;
    if (offset_ < head_size_) {
      step = take_mark(offset_, head_size_, bytes, taken);
    } else if (offset_ < tail_at_) {
      step = std::min(bytes.size(), tail_at_ - offset_);
    } else {
      step = take_mark(offset_ - tail_at_, kMarkSize, bytes, taken);
    }
    bytes = bytes.subspan(step);
    offset_ += step;
    if (offset_ == block_size_) {
      offset_ = 0;
      number_ += 1;
      taken.blocks += 1;
    }
  }
  return taken;
}

// As much of a mark of `size` bytes as there is, from its byte `from` on. A mark may come in pieces; it
// counts when its last byte does.
std::size_t IncomingBlocks::take_mark(std::size_t from, std::size_t size, std::span<const std::uint8_t> bytes,
                                      Taken& taken) {
  const std::size_t step = std::min(bytes.size(), size - from);
  if (learning_) {
    for (std::size_t i = 0; i < step; ++i) number_ |= std::uint64_t{bytes[i]} << (8 * (from + i));
    learning_ = from + step < size;
    return step;
  }
  const Mark mark = mark_of(number_);
  mark_is_wrong_ |= !std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(step),
                                mark.begin() + static_cast<std::ptrdiff_t>(from));
  if (from + step == size) {
    taken.marks += 1;
    taken.wrong += mark_is_wrong_ ? 1 : 0;
    mark_is_wrong_ = false;
  }
  return step;
}

}  // namespace tlsproxy::load
