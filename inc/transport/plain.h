// Plain: the four verbs over a bare socket.
#pragma once

#include <cstddef>
#include <span>

#include "transport/io_result.h"
#include "transport/socket.h"

namespace tlsproxy::transport {

class Plain {
 public:
  // `socket` must outlive it.
  explicit Plain(Socket& socket) : socket_(&socket) {}

  [[nodiscard]] bool may_read() const { return socket_->may_read(); }
  [[nodiscard]] bool may_write() const { return socket_->may_write(); }

  IoResult read(std::span<std::byte> room) { return socket_->read(room); }
  IoResult write(std::span<const std::byte> data) { return socket_->write(data); }

  // The orderly end of our direction.
  IoResult shutdown() {
    socket_->shutdown_write();
    return IoResult::done();
  }

 private:
  Socket* socket_;
};

}  // namespace tlsproxy::transport
