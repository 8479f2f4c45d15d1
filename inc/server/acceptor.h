// Acceptor: one listening socket in one worker, and the service its clients get.
//
// Level-triggered: what one wake-up leaves in the queue wakes the worker again, so a batch can be small
// and a flood of connections starves nobody. A reload that keeps the socket points it at the new service.
#pragma once

#include <memory>

#include "loop/io_event.h"
#include "loop/loop.h"
#include "os/address.h"
#include "os/fd.h"
#include "relay/generation.h"
#include "server/message.h"

namespace tlsproxy::server {

class Acceptor {
 public:
  class Owner {
   public:
    // A client came, on a non-blocking socket.
    virtual void accepted(Acceptor& acceptor, os::Fd client, const os::SocketAddress& peer) = 0;
    // Accepting fails for want of descriptors or memory, or for a fault of the socket: nothing is gained
    // by trying again at once. The owner pauses its acceptors.
    virtual void cannot_accept(int error) = 0;

   protected:
    ~Owner() = default;
  };

  static constexpr int kBatch = 16;

  // `socket` listens and does not block. Accepts nothing before resume().
  Acceptor(loop::Loop& loop, SharedFd socket, Owner& owner)
      : loop_(loop), socket_(std::move(socket)), owner_(owner) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Clients accepted from now on get `service` of `generation`.
  void serve(std::shared_ptr<relay::Generation> generation, const relay::Service* service) {
    generation_ = std::move(generation);
    service_ = service;
  }
  [[nodiscard]] const std::shared_ptr<relay::Generation>& generation() const { return generation_; }
  [[nodiscard]] const relay::Service* service() const { return service_; }

  void resume();
  void pause() { event_.stop(); }

  // Accepts what is queued, at most `most`, and nothing after that.
  void finish(int most);

 private:
  void on_readable(loop::IoNews);
  // False when there is no point in going on.
  bool accept_one();

  loop::Loop& loop_;
  SharedFd socket_;
  Owner& owner_;
  std::shared_ptr<relay::Generation> generation_;
  const relay::Service* service_ = nullptr;
  loop::IoEvent event_;
};

}  // namespace tlsproxy::server
