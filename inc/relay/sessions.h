// Sessions: all sessions of a worker, and the only place where one is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "buffer/block_pool.h"
#include "loop/loop.h"
#include "os/address.h"
#include "os/fd.h"
#include "record/close_reason.h"
#include "relay/flow.h"
#include "relay/generation.h"

namespace tlsproxy::relay {

class Session;

class Sessions {
 public:
  // `loop` and `pool` must outlive it. `splice`: when sessions between plain legs do.
  Sessions(loop::Loop& loop, buffer::BlockPool& pool, SpliceWhen splice = SpliceWhen::bulk);
  ~Sessions();
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // Begins a session on an accepted, non-blocking client socket.
  void open(os::Fd client, const os::SocketAddress& peer, std::shared_ptr<Generation> generation,
            const Service& service);

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t size_of_generation(std::uint64_t id) const;

  // Gives up what only bulk needed and nobody has needed since the last call (pipes). The worker calls it
  // beside BlockPool::trim(), again and again while it returns true: something is left to give up.
  bool trim();

  // Ends, in order, every session of a generation older than `id` (reason drain or stopped).
  void close_older_than(std::uint64_t id, record::CloseReason reason);
  void close_all(record::CloseReason reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tlsproxy::relay
