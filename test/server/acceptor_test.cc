#include "server/acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <vector>

#include "loop/timer.h"
#include "support/catch.h"
#include "support/faults.h"

using namespace tlsproxy;
using namespace tlsproxy::server;

namespace {

// A listening socket on loopback and clients that wait in its queue.
class Door {
 public:
  Door() : socket_(share(os::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)))) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    REQUIRE(::bind(socket_->get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(socket_->get(), 128) == 0);
    REQUIRE(::getsockname(socket_->get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    address_ = os::SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&address), length);
  }

  [[nodiscard]] const SharedFd& socket() const { return socket_; }

  void knock(int times) {
    for (int i = 0; i < times; ++i) {
      os::Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      REQUIRE(::connect(client.get(), address_.data(), address_.size()) == 0);
      clients_.push_back(std::move(client));
    }
  }

 private:
  SharedFd socket_;
  os::SocketAddress address_;
  std::vector<os::Fd> clients_;
};

class Host final : public Acceptor::Owner {
 public:
  void accepted(Acceptor&, os::Fd client, const os::SocketAddress& peer) override {
    CHECK((::fcntl(client.get(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK(peer.family() == AF_INET);
    ++accepted_;
  }
  void cannot_accept(int error) override { errors_.push_back(error); }

  int accepted_ = 0;
  std::vector<int> errors_;
};

}  // namespace

TEST_CASE("one wake-up accepts a batch and no more, and the next wakes for the rest", "[acceptor]") {
  loop::Loop loop;
  Door door;
  Host host;
  Acceptor acceptor(loop, door.socket(), host);
  acceptor.resume();
  door.knock(Acceptor::kBatch + 3);
  loop.turn();
  CHECK(host.accepted_ == Acceptor::kBatch);
  loop.turn();
  CHECK(host.accepted_ == Acceptor::kBatch + 3);
}

TEST_CASE("a client that is gone before it was accepted costs the others nothing", "[acceptor]") {
  loop::Loop loop;
  Door door;
  Host host;
  support::Faults faults;
  Acceptor acceptor(loop, door.socket(), host);
  acceptor.resume();
  door.knock(2);
  for (const int error : {ECONNABORTED, EINTR, EPROTO, EPERM})
    faults.accept4.push_back(support::fails(error));
  loop.turn();
  CHECK(host.accepted_ == 2);
  CHECK(host.errors_.empty());
}

TEST_CASE("want of descriptors or memory is told to the owner, and the batch ends", "[acceptor]") {
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    loop::Loop loop;
    Door door;
    Host host;
    support::Faults faults;
    Acceptor acceptor(loop, door.socket(), host);
    acceptor.resume();
    door.knock(2);
    faults.accept4.push_back(support::fails(error));
    loop.turn();
    CHECK(host.accepted_ == 0);
    CHECK(host.errors_ == std::vector<int>{error});
    loop.turn();
    CHECK(host.accepted_ == 2);
  }
}

TEST_CASE("finishing accepts what is queued and nothing after it", "[acceptor]") {
  loop::Loop loop;
  Door door;
  Host host;
  Acceptor acceptor(loop, door.socket(), host);
  acceptor.resume();
  door.knock(40);
  acceptor.finish(100);
  CHECK(host.accepted_ == 40);
  acceptor.finish(0);
  door.knock(1);
  loop::Timer timer;
  struct Stop {
    void now() { stopped = true; }
    bool stopped = false;
  } stop;
  timer.bind<&Stop::now>(loop, stop);
  timer.arm(loop::Duration(20));
  while (!stop.stopped) loop.turn();
  CHECK(host.accepted_ == 40);
}

TEST_CASE("finishing is bounded, however many clients keep coming", "[acceptor]") {
  loop::Loop loop;
  Door door;
  Host host;
  Acceptor acceptor(loop, door.socket(), host);
  door.knock(10);
  acceptor.finish(4);
  CHECK(host.accepted_ == 4);
}
