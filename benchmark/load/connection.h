// Connection: one slot of the generator; drives its channel from connect to close and exchanges blocks
// over it. What it should do next, and when, is its owner's business.
//
//   closed --open()--> connecting --> handshaking --> open --finish()--> closing --> closed
//                          any of them --failure--> closed
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "blocks.h"
#include "channel.h"
#include "clock.h"
#include "options.h"
#include "poller.h"
#include "tls_client.h"

namespace tlsproxy::load {

// What all connections have done together.
struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t checked = 0;
  std::uint64_t connects = 0;
  std::uint64_t full_handshakes = 0;
  std::uint64_t resumed_handshakes = 0;
  std::uint64_t resets_at_close = 0;
};

// What all connections use.
struct Commons {
  const Options& options;
  Workload workload;
  const TlsClient* tls;  // null: plain
  std::vector<os::SocketAddress> sources;
  Poller& poller;
  std::vector<std::uint8_t> out_block;  // all send this one, each with its marks
  std::vector<std::uint8_t> in_buffer;
  Traffic traffic;
};

class Connection;

class ConnectionOwner {
 public:
  // It is open now.
  virtual void opened(Connection& connection) = 0;
  // So many operations were completed. begin() and finish() may be called from here.
  virtual void completed(Connection& connection, std::uint64_t operations) = 0;
  // finish() has come to its end, and it is closed.
  virtual void finished(Connection& connection) = 0;
  // It is closed.
  virtual void failed(Connection& connection, Cause cause) = 0;

 protected:
  ~ConnectionOwner() = default;
};

class Connection {
 public:
  enum class State : std::uint8_t { closed, connecting, handshaking, open, closing };

  Connection(std::uint32_t index, Commons& commons, ConnectionOwner& owner);

  // Connects; from closed only. `intended` is that of the operation it is opened for.
  void open(Nanoseconds intended);

  // Begins an operation that was meant to begin at `intended`; when open, and not busy. A stream goes on
  // for ever, and each piece of it counts as an operation.
  void begin(Nanoseconds intended);

  // Ends it in order; when open.
  void finish();

  // Closes it as failed, now.
  void fail(Cause cause);

  // Goes on after an event, and when has_more().
  void serve(std::uint32_t events);

  // Whether a turn ended with work left that no event will tell of. Reset by serve().
  [[nodiscard]] bool has_more() const { return has_more_; }

  // Whether it has been waiting for the subject since before `since`, and what that would be called.
  [[nodiscard]] bool is_stuck(Nanoseconds since) const;
  [[nodiscard]] Cause cause_when_stuck() const;

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool is_busy() const { return busy_; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] Nanoseconds intended() const { return intended_; }
  [[nodiscard]] SSL* ssl() const { return channel_.ssl(); }

 private:
  void established();
  void shake_hands();
  void push();
  void pull();
  void take(std::span<const std::uint8_t> bytes);
  void drain();
  void watch();
  void note_progress() { progress_ = commons_.poller.woken(); }

  Commons& commons_;
  ConnectionOwner& owner_;
  std::uint32_t index_;
  State state_ = State::closed;
  bool busy_ = false;
  bool sending_ = false;   // a block is not completely written yet
  std::size_t piece_ = 0;  // of the write that is under way: what is left
  bool has_more_ = false;
  std::uint32_t watched_ = 0;  // events asked of the poller; 0: not in its set
  Channel channel_;
  OutgoingBlocks outgoing_{kStreamBlock, 0};
  IncomingBlocks incoming_{kStreamBlock, 0};
  SessionPtr ticket_;
  Nanoseconds intended_ = 0;
  Nanoseconds progress_ = 0;
};

}  // namespace tlsproxy::load
