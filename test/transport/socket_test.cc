#include "transport/socket.h"

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/faults.h"
#include "support/sockets.h"

using namespace tlsproxy;
using transport::IoStatus;
using transport::Socket;

namespace {

struct Fixture {
  Socket socket;
  os::Fd peer;
  support::Faults faults;
  std::array<std::byte, 64> room{};
  Fixture() {
    auto [one, other] = support::connected_pair(true);
    socket.adopt(std::move(one));
    peer = std::move(other);
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a read shorter than asked means drained, without a second read", "[socket]") {
  REQUIRE(support::write_all(peer.get(), "hello"));
  const auto got = socket.read(room);
  CHECK(got.bytes == 5);
  CHECK_FALSE(socket.may_read());
  CHECK(faults.counts().recv == 1);
}

TEST_CASE_METHOD(Fixture, "a full read leaves the socket readable", "[socket]") {
  REQUIRE(support::write_all(peer.get(), std::string(200, 'x')));
  CHECK(socket.read(room).bytes == room.size());
  CHECK(socket.may_read());
}

TEST_CASE("from the first large read on the kernel tells when a full read was all", "[socket]") {
  auto [one, other] = support::connected_pair(true);
  Socket socket;
  socket.adopt(std::move(one));
  support::Faults faults;
  std::vector<std::byte> room(32U * 1024);
  const std::string chunk(room.size(), 'x');
  const int plenty = 200'000;
  REQUIRE(::setsockopt(other.get(), SOL_SOCKET, SO_SNDBUF, &plenty, sizeof(plenty)) == 0);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(support::write_all(other.get(), chunk));
    socket.note(true, false, false);
    const std::size_t before = faults.counts().recv;
    CHECK(socket.read(room).bytes == room.size());
    if (i == 0) {
      REQUIRE(socket.may_read());
      CHECK(socket.read(room).would_block());
    }
    CHECK_FALSE(socket.may_read());
    CHECK(faults.counts().recv - before == (i == 0 ? 2U : 1U));
  }
  REQUIRE(support::write_all(other.get(), chunk + "y"));
  socket.note(true, false, false);
  CHECK(socket.read(room).bytes == room.size());
  CHECK(socket.may_read());
  CHECK(socket.read(room).bytes == 1);
  CHECK_FALSE(socket.may_read());
}

TEST_CASE("where the kernel tells nothing, only an empty read shows that a full one was all", "[socket]") {
  auto [one, other] = support::connected_pair(false);
  Socket socket;
  socket.adopt(std::move(one));
  std::vector<std::byte> room(32U * 1024);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(support::write_all(other.get(), std::string(room.size(), 'x')));
    socket.note(true, false, false);
    CHECK(socket.read(room).bytes == room.size());
    CHECK(socket.may_read());
    CHECK(socket.read(room).would_block());
  }
}

TEST_CASE_METHOD(Fixture, "after a hangup a short read is followed by another, up to the end", "[socket]") {
  REQUIRE(support::write_all(peer.get(), "bye"));
  peer.reset();
  socket.note(true, false, true);
  CHECK(socket.read(room).bytes == 3);
  REQUIRE(socket.may_read());
  CHECK(socket.read(room).status == IoStatus::end);
}

TEST_CASE_METHOD(Fixture, "what is written before the end leaves with it, and not before", "[socket]") {
  REQUIRE(socket.write(support::as_bytes("bye"), Socket::Then::shutdown).bytes == 3);
  CHECK(support::read_available(peer.get()).empty());
  socket.shutdown_write();
  CHECK(support::read_available(peer.get()) == "bye");
}

TEST_CASE_METHOD(Fixture, "an interrupted call is made again", "[socket]") {
  faults.recv = {support::fails(EINTR), support::fails(EINTR)};
  faults.send = {support::fails(EINTR)};
  REQUIRE(support::write_all(peer.get(), "hello"));
  CHECK(socket.read(room).bytes == 5);
  CHECK(socket.write(support::as_bytes("hi")).bytes == 2);
}

TEST_CASE_METHOD(Fixture, "EAGAIN clears the ready bit and news sets it again", "[socket]") {
  CHECK(socket.read(room).would_block());
  CHECK_FALSE(socket.may_read());
  faults.send = {support::fails(EAGAIN)};
  CHECK(socket.write(support::as_bytes("hi")).would_block());
  CHECK_FALSE(socket.may_write());
  socket.note(true, true, false);
  CHECK(socket.may_read());
  CHECK(socket.may_write());
}

TEST_CASE_METHOD(Fixture, "a lost connection is a reset, lack of memory a failure, each with its errno",
                 "[socket]") {
  faults.recv = {support::fails(ECONNRESET), support::fails(ETIMEDOUT), support::fails(ENOMEM)};
  CHECK(socket.read(room).status == IoStatus::reset);
  CHECK(socket.read(room).status == IoStatus::reset);
  const auto failed = socket.read(room);
  CHECK(failed.status == IoStatus::failed);
  CHECK(failed.error == ENOMEM);
  faults.send = {support::fails(EPIPE), support::fails(ENOBUFS)};
  CHECK(socket.write(support::as_bytes("x")).status == IoStatus::reset);
  CHECK(socket.write(support::as_bytes("x")).status == IoStatus::failed);
}

TEST_CASE("a connect that cannot get a descriptor or a port fails as ours", "[socket]") {
  support::Faults faults;
  const auto address = os::SocketAddress::parse("127.0.0.1:9").value();
  Socket socket;
  faults.socket = {support::fails(EMFILE)};
  CHECK(socket.connect(address).status == IoStatus::failed);
  CHECK_FALSE(socket.is_open());
  faults.connect = {support::fails(EADDRNOTAVAIL)};
  CHECK(socket.connect(address).status == IoStatus::failed);
  CHECK_FALSE(socket.is_open());
  faults.connect = {support::fails(ENETUNREACH)};
  CHECK(socket.connect(address).status == IoStatus::reset);
  CHECK_FALSE(socket.is_open());
}
