// Channel: the line between the master and one worker. Whole messages with descriptors, in order.
//
// A SOCK_SEQPACKET pair. send() never blocks and never loses: what the kernel does not take now waits in
// the outbox until flush(). The outbox grows with what the other end does not read; the owner bounds
// that by its protocol (a worker answers, the master sends one generation at a time).
#pragma once

#include <deque>
#include <string>
#include <utility>

#include "base/result.h"
#include "os/fd.h"
#include "server/message.h"

namespace tlsproxy::server {

// What receive() found.
struct Received {
  enum class Kind {
    message,
    nothing,  // for now
    closed,   // the other end is gone
    damaged,  // a message was there but cannot be used: `problem` says why. The next one may be good
  };
  Kind kind = Kind::nothing;
  Message message;
  std::string problem;
};

class Channel {
 public:
  // The two ends of a new channel, closed on exec.
  static base::Result<std::pair<Channel, Channel>> make_pair();

  explicit Channel(os::Fd end) : end_(std::move(end)) {}

  void send(Message message);

  // Sends what waits, as far as the kernel takes it. When the other end is gone nothing waits any more:
  // receive() tells.
  void flush();
  [[nodiscard]] bool waiting() const { return !outbox_.empty(); }

  // Never blocks.
  Received receive();

  [[nodiscard]] int fd() const { return end_.get(); }
  void close();

 private:
  os::Fd end_;
  std::deque<Packet> outbox_;
};

}  // namespace tlsproxy::server
