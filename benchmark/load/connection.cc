#include "connection.h"

#include <algorithm>

namespace tlsproxy::load {
namespace {

constexpr int kReadsPerTurn = 32;
constexpr int kWritesPerTurn = 64;

}  // namespace

Connection::Connection(std::uint32_t index, Commons& commons, ConnectionOwner& owner)
    : commons_(commons), owner_(owner), index_(index) {}

void Connection::open(Nanoseconds intended) {
  intended_ = intended;
  progress_ = now();
  has_more_ = false;
  watched_ = 0;
  piece_ = 0;
  const std::uint64_t first = first_block(index_);
  switch (commons_.workload.exchange) {
    case Exchange::echo:
      outgoing_ = OutgoingBlocks(commons_.options.payload, first);
      incoming_ = IncomingBlocks(commons_.options.payload, first);
      break;
    case Exchange::fetch:
      outgoing_ = OutgoingBlocks(kRequestSize, first);
      incoming_ = IncomingBlocks::of_unknown_origin(commons_.options.payload);
      break;
    case Exchange::up:
      outgoing_ = OutgoingBlocks(kStreamBlock, first);
      incoming_ = IncomingBlocks(kMarkSize, kFirstAcknowledgement);
      break;
    case Exchange::down:
      incoming_ = IncomingBlocks::of_unknown_origin(kStreamBlock);
      break;
  }
  state_ = State::connecting;
  commons_.traffic.connects += 1;
  const auto& sources = commons_.sources;
  switch (channel_.connect(commons_.options.address, sources[commons_.traffic.connects % sources.size()])) {
    case Step::done:
      established();
      break;
    case Step::blocked:
      break;
    default:
      fail(channel_.cause());
  }
  watch();
}

void Connection::established() {
  state_ = State::handshaking;
  if (commons_.tls != nullptr) {
    SslPtr ssl = commons_.tls->open(channel_.fd(), ticket_);
    if (!ssl) return fail(Cause::other);
    channel_.secure(std::move(ssl));
  }
  shake_hands();
}

void Connection::shake_hands() {
  const Step step = channel_.handshake();
  if (step == Step::blocked) return;
  if (step != Step::done) return fail(channel_.cause());
  if (channel_.ssl() != nullptr) {
    const bool resumed = SSL_session_reused(channel_.ssl()) == 1;
    (resumed ? commons_.traffic.resumed_handshakes : commons_.traffic.full_handshakes) += 1;
  }
  state_ = State::open;
  owner_.opened(*this);
  if (state_ == State::open && channel_.has_buffered()) pull();
}

void Connection::begin(Nanoseconds intended) {
  intended_ = intended;
  busy_ = true;
  sending_ = commons_.workload.exchange != Exchange::down;
  note_progress();
  push();
  watch();
}

void Connection::finish() {
  channel_.say_end();
  state_ = State::closing;
  note_progress();
  if (commons_.options.abort_close) {
    channel_.close(true);
    state_ = State::closed;
    owner_.finished(*this);
  }
}

void Connection::fail(Cause cause) {
  channel_.close(false);
  state_ = State::closed;
  busy_ = false;
  sending_ = false;
  owner_.failed(*this, cause);
}

void Connection::serve(std::uint32_t events) {
  if (has_more_) events |= EPOLLIN | EPOLLOUT;  // an event does not tell what was left
  has_more_ = false;
  note_progress();
  switch (state_) {
    case State::closed:
      return;
    case State::connecting:
      if (channel_.finish_connect() != Step::done) return fail(channel_.cause());
      established();
      break;
    case State::handshaking:
      shake_hands();
      break;
    case State::open:
      if ((events & EPOLLOUT) != 0) push();
      if (state_ == State::open && (events & ~std::uint32_t{EPOLLOUT}) != 0) pull();
      break;
    case State::closing:
      drain();
      break;
  }
  watch();
}

// Writes until the block is out, or nothing more can be written, or the turn is over.
void Connection::push() {
  Step step = channel_.flush();
  for (int writes = 0; step == Step::done && sending_; ++writes) {
    if (writes == kWritesPerTurn) {
      has_more_ = true;
      return;
    }
    const auto rest = outgoing_.rest(commons_.out_block);
    if (piece_ == 0) piece_ = std::min(rest.size(), commons_.options.payload);
    const Channel::Moved moved = channel_.write(rest.first(piece_));
    step = moved.step;
    if (step != Step::done) break;
    commons_.traffic.bytes_sent += moved.bytes;
    piece_ -= moved.bytes;
    const bool is_out = outgoing_.sent(moved.bytes);
    if (is_out && !is_stream(commons_.workload.exchange)) sending_ = false;
    if (piece_ == 0) step = channel_.flush();
  }
  if (step == Step::failed) return fail(channel_.cause());
  if (step == Step::ended) return fail(Cause::closed);
}

void Connection::pull() {
  auto& buffer = commons_.in_buffer;
  for (int reads = 0; reads < kReadsPerTurn; ++reads) {
    const Channel::Moved moved = channel_.read(buffer);
    if (moved.step == Step::blocked) return;
    if (moved.step == Step::failed) return fail(channel_.cause());
    if (moved.step == Step::ended) return fail(Cause::closed);
    take(std::span(buffer).first(moved.bytes));
    if (state_ != State::open || !channel_.may_have_more(moved.bytes, buffer.size())) return;
  }
  has_more_ = true;
}

void Connection::take(std::span<const std::uint8_t> bytes) {
  const IncomingBlocks::Taken taken = incoming_.take(bytes);
  commons_.traffic.bytes_received += bytes.size();
  commons_.traffic.checked += taken.marks;
  if (taken.wrong != 0) return fail(Cause::mismatch);
  if (is_stream(commons_.workload.exchange)) {
    if (taken.blocks != 0) owner_.completed(*this, taken.blocks);
    return;
  }
  if (!busy_) return fail(Cause::mismatch);  // an answer to nothing
  if (taken.blocks == 0) return;
  const bool is_more_than_sent = taken.blocks > 1 || !incoming_.at_edge() || sending_;
  if (is_more_than_sent) return fail(Cause::mismatch);
  busy_ = false;
  owner_.completed(*this, 1);
}

// What a peer that resets instead of ending does to its own stream is its business by now; it is counted.
void Connection::drain() {
  Step step = Step::done;
  for (int reads = 0; step == Step::done && reads < kReadsPerTurn; ++reads) {
    step = channel_.drain(commons_.in_buffer);
  }
  if (step == Step::done || step == Step::blocked) return;
  if (step == Step::failed) commons_.traffic.resets_at_close += 1;
  channel_.close(false);
  state_ = State::closed;
  owner_.finished(*this);
}

// Asks the poller for what the state needs; level-triggered, so that this changes only around stalls.
void Connection::watch() {
  if (state_ == State::closed) return;
  std::uint32_t interest = 0;
  if (channel_.wants_write()) interest |= EPOLLOUT;
  if (state_ != State::connecting) interest |= EPOLLIN;
  if (interest == watched_) return;
  const bool known = watched_ != 0;
  watched_ = interest;
  const bool accepted = known ? commons_.poller.change(channel_.fd(), index_, interest)
                              : commons_.poller.add(channel_.fd(), index_, interest);
  if (!accepted) fail(Cause::other);
}

bool Connection::is_stuck(Nanoseconds since) const {
  const bool waits = state_ != State::closed && (state_ != State::open || busy_);
  return waits && progress_ < since;
}

Cause Connection::cause_when_stuck() const {
  return state_ == State::closing ? Cause::close_timeout : Cause::timeout;
}

}  // namespace tlsproxy::load
