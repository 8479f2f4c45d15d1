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
#include <utility>

#include "buffer/block_pool.h"
#include "buffer/relay_buffer.h"
#include "relay/leg.h"
#include "relay/splice_pipe.h"
#include "transport/io_result.h"

namespace tlsproxy::relay {

// When bytes between plain legs are spliced.
enum class SpliceWhen : std::uint8_t { bulk, always, never };

// What a worker's flows share.
struct Means {
  buffer::BlockPool& blocks;
  PipePool& pipes;
  SpliceWhen splice = SpliceWhen::bulk;
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

  // Whether pump() might move something: there is something to read and a place for it.
  [[nodiscard]] bool could_move() const { return source_->may_read() && sink_->may_write(); }

  // Reads one buffer full while there is no sink yet; as pump(), but never failed or out_of_budget.
  [[nodiscard]] Progress read_ahead(buffer::BlockPool& pool);

  // The flow's buffer, for whoever must look at the first bytes before it is known where they go. They are
  // relayed once admitted, or taken away.
  [[nodiscard]] buffer::RelayBuffer& first_bytes() { return buffer_; }
  void admit_first_bytes() { bytes_in_ += buffer_.pending().size(); }
  [[nodiscard]] buffer::RelayBuffer take_first_bytes() { return std::exchange(buffer_, {}); }

  // Drops what is pending and gives block and pipe back.
  void discard(Means& means);

  [[nodiscard]] Leg& source() const { return *source_; }
  [[nodiscard]] Leg& sink() const { return *sink_; }
  [[nodiscard]] const buffer::RelayBuffer& buffer() const { return buffer_; }
  // How the source has ended, and how the sink has failed: would_block while it has not.
  [[nodiscard]] transport::IoResult source_end() const { return source_end_.result(); }
  [[nodiscard]] transport::IoResult sink_end() const { return sink_end_.result(); }
  // Whether the sink lacks bytes that were read for it: they are still here, or were dropped when it failed.
  [[nodiscard]] bool has_undelivered() const {
    return !buffer_.empty() || pipe_ != nullptr || sink_->has_backlog() || sink_end_.is_known();
  }
  [[nodiscard]] std::uint64_t bytes_in() const { return bytes_in_; }
  [[nodiscard]] std::uint64_t bytes_out() const { return bytes_out_; }
  // Whether a block was refused since the last call.
  [[nodiscard]] bool take_starved();

 private:
  // An IoResult without its count, in 4 bytes instead of 24.
  class End {
   public:
    End() = default;
    explicit End(transport::IoResult result)
        : status_(result.status), error_(static_cast<std::int16_t>(result.error)) {}
    [[nodiscard]] bool is_known() const { return status_ != transport::IoStatus::would_block; }
    [[nodiscard]] transport::IoResult result() const { return {status_, 0, error_}; }

   private:
    transport::IoStatus status_ = transport::IoStatus::would_block;
    std::int16_t error_ = 0;  // errno values end at 4095
  };

  Progress deliver(Means& means);
  Progress deliver_spliced(Means& means);
  Progress fetch(buffer::BlockPool& pool);
  Progress fetch_spliced(Means& means);
  bool should_splice(SpliceWhen when) const;

  Leg* source_;
  Leg* sink_;
  buffer::RelayBuffer buffer_;
  SplicePipePtr pipe_;  // held only while bytes are in it
  std::uint64_t bytes_in_ = 0;
  std::uint64_t bytes_out_ = 0;
  End source_end_;
  End sink_end_;
  bool starved_ = false;
};
static_assert(sizeof(Flow) <= 96, "every session holds two");

}  // namespace tlsproxy::relay
