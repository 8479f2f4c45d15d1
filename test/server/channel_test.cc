#include "server/channel.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/defer.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::server;

namespace {

struct Line {
  Line() : ends(std::move(*Channel::make_pair())) {}
  std::pair<Channel, Channel> ends;
  Channel& master = ends.first;
  Channel& worker = ends.second;
};

std::uint64_t id_of(const Received& received) {
  return std::get<Prepare>(received.message).id;
}

}  // namespace

TEST_CASE("a channel hands over messages in order, one by one", "[channel]") {
  Line line;
  line.master.send(Prepare{1});
  line.master.send(Prepare{2});
  CHECK(id_of(line.worker.receive()) == 1);
  CHECK(id_of(line.worker.receive()) == 2);
  CHECK(line.worker.receive().kind == Received::Kind::nothing);
}

TEST_CASE("a descriptor that arrives is the one that was sent, and is closed on exec", "[channel]") {
  Line line;
  int pipe_ends[2];
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC) == 0);
  const os::Fd reading(pipe_ends[0]);
  {
    const SharedFd writing = share(os::Fd(pipe_ends[1]));
    line.master.send(ListenSocket{1, 0, 0, writing});
  }
  const Received received = line.worker.receive();
  const SharedFd arrived = std::get<ListenSocket>(received.message).fd;
  REQUIRE(arrived != nullptr);
  CHECK((::fcntl(arrived->get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(::write(arrived->get(), "!", 1) == 1);
  char byte = 0;
  CHECK(::read(reading.get(), &byte, 1) == 1);
  CHECK(byte == '!');
}

TEST_CASE("a full channel loses nothing and blocks nobody", "[channel]") {
  Line line;
  constexpr std::uint64_t kMany = 5000;
  for (std::uint64_t i = 0; i < kMany; ++i) line.master.send(Prepare{i});
  REQUIRE(line.master.waiting());
  std::uint64_t next = 0;
  for (int turn = 0; turn < 10000 && next < kMany; ++turn) {
    const Received received = line.worker.receive();
    if (received.kind == Received::Kind::nothing) {
      line.master.flush();
      continue;
    }
    REQUIRE(received.kind == Received::Kind::message);
    REQUIRE(id_of(received) == next);
    ++next;
  }
  CHECK(next == kMany);
  CHECK_FALSE(line.master.waiting());
}

TEST_CASE("a descriptor that waits in a full channel stays open until it is sent", "[channel]") {
  Line line;
  while (!line.master.waiting()) line.master.send(Ping{});
  line.master.send(ListenSocket{1, 0, 0, share(os::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)))});
  for (int turn = 0; turn < 10000; ++turn) {
    const Received received = line.worker.receive();
    line.master.flush();
    if (received.kind != Received::Kind::message) continue;
    if (const auto* socket = std::get_if<ListenSocket>(&received.message)) {
      REQUIRE(socket->fd != nullptr);
      CHECK(::fcntl(socket->fd->get(), F_GETFD) >= 0);
      return;
    }
  }
  FAIL("the descriptor never arrived");
}

TEST_CASE("a worker sees that its master is gone, after everything it said before", "[channel]") {
  Line line;
  line.master.send(Prepare{1});
  line.master.close();
  CHECK(line.worker.receive().kind == Received::Kind::message);
  CHECK(line.worker.receive().kind == Received::Kind::closed);
}

TEST_CASE("sending to who is gone is no error, and nothing is kept for him", "[channel]") {
  Line line;
  line.worker.close();
  line.master.send(Prepare{1});
  CHECK_FALSE(line.master.waiting());
  CHECK(line.master.receive().kind == Received::Kind::closed);
}

TEST_CASE("a message longer than any is reported, and the next one is read", "[channel]") {
  Line line;
  const std::string huge(kLongestMessage + 1, 'x');
  REQUIRE(::send(line.master.fd(), huge.data(), huge.size(), 0) == static_cast<ssize_t>(huge.size()));
  line.master.send(Prepare{2});
  CHECK(line.worker.receive().kind == Received::Kind::damaged);
  CHECK(id_of(line.worker.receive()) == 2);
}

TEST_CASE("a descriptor that does not fit the limit of open files is reported, not taken for none",
          "[channel]") {
  Line line;
  line.master.send(ListenSocket{1, 0, 0, share(os::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)))});
  line.master.send(Prepare{2});
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  {
    const rlimit none{0, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const auto restore = base::defer([&before] { ::setrlimit(RLIMIT_NOFILE, &before); });
    const Received received = line.worker.receive();
    CHECK(received.kind == Received::Kind::damaged);
  }
  CHECK(id_of(line.worker.receive()) == 2);
}

TEST_CASE("descriptors of a message that is refused are closed", "[channel]") {
  Line line;
  int pipe_ends[2];
  REQUIRE(::pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const os::Fd reading(pipe_ends[0]);
  {
    // A Ping that carries a descriptor, which no Ping does.
    Packet packet = encode(Ping{});
    const os::Fd writing(pipe_ends[1]);
    iovec data{packet.bytes.data(), packet.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    *reinterpret_cast<int*>(CMSG_DATA(rights)) = writing.get();
    REQUIRE(::sendmsg(line.master.fd(), &header, 0) > 0);
  }
  CHECK(line.worker.receive().kind == Received::Kind::damaged);
  char byte = 0;
  CHECK(::read(reading.get(), &byte, 1) == 0);  // end of file: no writer is left
}
