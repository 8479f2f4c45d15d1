// SplicePipe: a pipe through which bytes pass from one plain socket to another without coming up into
// this process (splice(2)). PipePool: the pipes of a worker.
//
// Like a block, a pipe is taken when bulk bytes arrive and given back when they have gone on. An empty pipe
// costs two descriptors and no page, so a few are kept for the next taker.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "os/fd.h"
#include "transport/io_result.h"
#include "transport/socket.h"

namespace tlsproxy::relay {

class SplicePipe {
 public:
  SplicePipe(os::Fd read_end, os::Fd write_end, std::size_t capacity)
      : read_end_(std::move(read_end)), write_end_(std::move(write_end)), capacity_(capacity) {}

  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  // Takes what `source` has, up to the pipe's capacity; the pipe is empty before. As Socket::read.
  transport::IoResult fill(transport::Socket& source);

  // Gives `sink` what is inside, as much as it takes. As Socket::write.
  transport::IoResult drain(transport::Socket& sink);

 private:
  os::Fd read_end_;
  os::Fd write_end_;
  std::size_t capacity_;
  std::size_t bytes_ = 0;
};

using SplicePipePtr = std::unique_ptr<SplicePipe>;

class PipePool {
 public:
  // Bytes asked for per pipe. The kernel may give less: a user's pipes share a limit (pipe(7)).
  static constexpr std::size_t kCapacity = 256U * 1024;
  // Pipes lent at a time, and kept free: each is two descriptors, which sessions need too.
  static constexpr std::size_t kMostLent = 256;
  static constexpr std::size_t kMostFree = 64;

  // A pipe that holds nothing, or null when there are enough or the system gives none: then copy.
  SplicePipePtr take();

  // Takes a pipe back; one that still holds bytes (its session broke off) is closed with them.
  void give_back(SplicePipePtr pipe);

  void close_free() {
    free_.clear();
    fewest_free_ = 0;
  }

  // Closes the pipes that were free all the time since the last call.
  void trim();

  [[nodiscard]] std::size_t lent() const { return lent_; }
  [[nodiscard]] std::size_t free() const { return free_.size(); }

 private:
  std::vector<SplicePipePtr> free_;
  std::size_t lent_ = 0;
  std::size_t fewest_free_ = 0;
};

}  // namespace tlsproxy::relay
