#include "relay/splice_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "buffer/block_pool.h"

namespace tlsproxy::relay {

using transport::IoResult;

IoResult SplicePipe::fill(transport::Socket& source) {
  TLSPROXY_DCHECK(bytes_ == 0, "a pipe is filled when everything before has gone on");
  const IoResult result = source.splice_to(write_end_.get(), capacity_);
  if (result.ok()) bytes_ = result.bytes;
  return result;
}

IoResult SplicePipe::drain(transport::Socket& sink) {
  const IoResult result = sink.splice_from(read_end_.get(), bytes_);
  if (result.ok()) bytes_ -= result.bytes;
  return result;
}

SplicePipePtr PipePool::take() {
  if (lent_ == kMostLent) return nullptr;
  SplicePipePtr pipe;
  if (!free_.empty()) {
    pipe = std::move(free_.back());
    free_.pop_back();
    fewest_free_ = std::min(fewest_free_, free_.size());
  } else {
    int ends[2];
    if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return nullptr;
    os::Fd read_end(ends[0]);
    os::Fd write_end(ends[1]);
    const int got = ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(kCapacity));
    const int capacity = got > 0 ? got : ::fcntl(ends[1], F_GETPIPE_SZ);
    // Beyond the user's limit pipes have two pages: copying is better than that.
    if (capacity < static_cast<int>(buffer::BlockPool::kCapacities[2])) return nullptr;
    pipe = std::make_unique<SplicePipe>(std::move(read_end), std::move(write_end),
                                        static_cast<std::size_t>(capacity));
    free_.reserve(kMostFree);
  }
  ++lent_;
  return pipe;
}

void PipePool::give_back(SplicePipePtr pipe) {
  TLSPROXY_CHECK(pipe != nullptr && lent_ > 0, "a pipe given back was taken from this pool");
  --lent_;
  if (pipe->bytes() == 0 && free_.size() < kMostFree) free_.push_back(std::move(pipe));
}

void PipePool::trim() {
  free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(fewest_free_));
  fewest_free_ = free_.size();
}

}  // namespace tlsproxy::relay
