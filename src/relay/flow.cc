#include "relay/flow.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tlsproxy::relay {

using transport::IoResult;

Flow::Progress Flow::pump(Means& means, std::size_t& budget) {
  buffer::BlockPool& pool = means.blocks;
  for (;;) {
    if (const Progress progress = deliver(means); progress != Progress::ended) {
      if (progress == Progress::failed) discard(means);
      return progress;
    }
    if (source_end_.is_known()) {
      buffer_.release(pool);
      return Progress::ended;
    }
    if (budget == 0) {
      // The block goes back even though more is to come: others in this turn may want it.
      buffer_.release(pool);
      return source_->may_read() ? Progress::out_of_budget : Progress::blocked;
    }
    const std::uint64_t before = bytes_in_;
    const Progress progress = should_splice(means.splice) ? fetch_spliced(means) : fetch(pool);
    budget -= std::min<std::size_t>(budget, bytes_in_ - before);
    if (progress == Progress::blocked) return progress;
  }
}

Flow::Progress Flow::read_ahead(buffer::BlockPool& pool) {
  if (buffer_.empty() && !source_end_.is_known()) static_cast<void>(fetch(pool));
  return buffer_.empty() && source_end_.is_known() ? Progress::ended : Progress::blocked;
}

// Writes what is pending: ended when all of it was taken, else blocked or failed.
Flow::Progress Flow::deliver(Means& means) {
  if (sink_end_.is_known()) return Progress::failed;
  if (pipe_ != nullptr) return deliver_spliced(means);
  if (sink_->has_backlog() && sink_->may_write()) {
    if (const IoResult flushed = sink_->flush_backlog(); !flushed.ok() && !flushed.would_block()) {
      sink_end_ = End(flushed);
      return Progress::failed;
    }
  }
  while (!buffer_.empty()) {
    if (!sink_->may_write()) return Progress::blocked;
    const IoResult written = sink_->write(buffer_.pending());
    if (written.would_block()) {
      starved_ = starved_ || sink_->take_starved();
      return Progress::blocked;
    }
    if (!written.ok()) {
      sink_end_ = End(written);
      return Progress::failed;
    }
    buffer_.consume(written.bytes);
    bytes_out_ += written.bytes;
  }
  return Progress::ended;
}

// Reads once into the empty buffer: ended when there is something to deliver or the source has ended.
Flow::Progress Flow::fetch(buffer::BlockPool& pool) {
  TLSPROXY_DCHECK(buffer_.empty(), "reading waits until everything before is delivered");
  if (!source_->may_read()) {
    buffer_.release(pool);
    return Progress::blocked;
  }
  // Plaintext waiting inside the TLS layer holds a block of its own, which only moving on gives back.
  const auto purpose =
      source_->has_more_at_hand() ? buffer::BlockPool::Purpose::move_on : buffer::BlockPool::Purpose::fill;
  if (!buffer_.prepare(pool, purpose)) {
    starved_ = true;
    return Progress::blocked;
  }
  const IoResult got = source_->read(buffer_.room());
  if (got.ok()) {
    buffer_.commit(got.bytes);
    bytes_in_ += got.bytes;
    if (source_->has_more_at_hand()) buffer_.note_more_at_hand();
    return Progress::ended;
  }
  buffer_.release(pool);
  if (got.would_block()) {
    starved_ = starved_ || source_->take_starved();
    return Progress::blocked;
  }
  source_end_ = End(got);
  return Progress::ended;
}

bool Flow::should_splice(SpliceWhen when) const {
  if (!source_->is_plain() || !sink_->is_plain()) return false;
  return when == SpliceWhen::bulk ? buffer_.wish() == buffer::BlockSize::large : when == SpliceWhen::always;
}

Flow::Progress Flow::fetch_spliced(Means& means) {
  buffer_.release(means.blocks);
  if (!source_->may_read()) return Progress::blocked;
  pipe_ = means.pipes.take();
  if (pipe_ == nullptr) return fetch(means.blocks);
  const IoResult got = source_->splice_to(*pipe_);
  if (got.ok()) {
    buffer_.note_passed_by(got.bytes);
    bytes_in_ += got.bytes;
    return Progress::ended;
  }
  means.pipes.give_back(std::move(pipe_));
  if (got.would_block()) return Progress::blocked;
  source_end_ = End(got);
  return Progress::ended;
}

Flow::Progress Flow::deliver_spliced(Means& means) {
  while (pipe_->bytes() > 0) {
    if (!sink_->may_write()) return Progress::blocked;
    const IoResult written = sink_->splice_from(*pipe_);
    if (written.would_block()) return Progress::blocked;
    if (!written.ok()) {
      sink_end_ = End(written);
      return Progress::failed;
    }
    bytes_out_ += written.bytes;
  }
  means.pipes.give_back(std::move(pipe_));
  return Progress::ended;
}

void Flow::discard(Means& means) {
  buffer_.discard(means.blocks);
  if (pipe_ != nullptr) means.pipes.give_back(std::move(pipe_));
}

bool Flow::take_starved() {
  return std::exchange(starved_, false);
}

}  // namespace tlsproxy::relay
