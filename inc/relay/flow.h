// Flow: one direction of a session. pump() is the one place where bytes move.
//
//   source Leg --read--> RelayBuffer --write--> sink Leg       small, or under TLS
//   source Leg --------> SplicePipe ----------> sink Leg       bulk between plain legs
//
// The way follows the load: once the buffer wishes for its largest block, bytes are spliced; two small
// arrivals in a row bring copying back, which is cheaper for those.
//
// It reads only when the buffer is empty and the sink has taken everything before: so a slow reader stops
// a fast writer, and a session never holds more than one block per direction (and one of gathered TLS
// records per leg). Neither does it decide what an end means: it reports, the session decides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "buffer/block_pool.h"
#include "buffer/relay_buffer.h"
#include "relay/leg.h"
#include "relay/splice_pipe.h"
#include "transport/io_result.h"

namespace tlsproxy::relay {

// What a worker's flows share.
struct Means {
  buffer::BlockPool& blocks;
  PipePool& pipes;
};

class Flow {
 public:
  // Both legs must outlive it.
  Flow(Leg& source, Leg& sink) : source_(&source), sink_(&sink) {}

  enum class Progress : std::uint8_t {
    blocked,        // waits for news of a leg, or for a block: see starved()
    out_of_budget,  // could go on at once, but others wait
    ended,          // the source has ended (how: source_end()) and the sink has taken every byte of it
    failed,         // the sink takes no more (why: sink_end()); what was pending is dropped
  };

  // Moves bytes until one of the above; `budget` is lowered by the bytes read.
  [[nodiscard]] Progress pump(Means& means, std::size_t& budget);

  // Reads one buffer full while there is no sink yet; as pump(), but never failed or out_of_budget.
  [[nodiscard]] Progress read_ahead(buffer::BlockPool& pool);

  // Takes over bytes that were received before there was a flow. The buffer is empty.
  void prime(buffer::RelayBuffer&& received);

  // Drops what is pending and gives block and pipe back.
  void discard(Means& means);

  [[nodiscard]] Leg& source() const { return *source_; }
  [[nodiscard]] Leg& sink() const { return *sink_; }
  [[nodiscard]] const buffer::RelayBuffer& buffer() const { return buffer_; }
  [[nodiscard]] transport::IoResult source_end() const { return source_end_; }
  [[nodiscard]] transport::IoResult sink_end() const { return sink_end_; }
  // Whether the sink lacks bytes that were read for it: they are still here, or were dropped when it failed.
  [[nodiscard]] bool has_undelivered() const {
    return !buffer_.empty() || pipe_ != nullptr || sink_->has_backlog() || !sink_end_.would_block();
  }
  [[nodiscard]] std::uint64_t bytes_in() const { return bytes_in_; }
  [[nodiscard]] std::uint64_t bytes_out() const { return bytes_out_; }
  // Whether a block was refused since the last call.
  [[nodiscard]] bool take_starved();

 private:
  Progress deliver(Means& means);
  Progress deliver_spliced(Means& means);
  Progress fetch(buffer::BlockPool& pool);
  Progress fetch_spliced(Means& means);
  bool should_splice() const;

  Leg* source_;
  Leg* sink_;
  buffer::RelayBuffer buffer_;
  SplicePipePtr pipe_;              // held only while bytes are in it
  transport::IoResult source_end_;  // would_block until the source has ended
  transport::IoResult sink_end_;    // would_block until the sink has failed
  std::uint64_t bytes_in_ = 0;
  std::uint64_t bytes_out_ = 0;
  bool starved_ = false;
};

}  // namespace tlsproxy::relay
