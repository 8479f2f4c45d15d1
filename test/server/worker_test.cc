// A worker over a channel whose other end the test holds. Everything it is told is said before it runs,
// so each run is one thread and ends by itself.
#include "server/worker.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "server/bundle.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::server;

namespace {

constexpr char kEcho[] =
    "drain: 1s\n"
    "listeners: [{name: l, bind: '127.0.0.1:0', to: e}]\n"
    "backends: {e: {echo: true}}\n";

SharedFd null_file() {
  return share(os::Fd(::open("/dev/null", O_WRONLY | O_CLOEXEC)));
}

class Play {
 public:
  Play() : ends_(std::move(*Channel::make_pair())) {
    socket_ = share(os::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
    REQUIRE(::listen(socket_->get(), 16) == 0);
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    REQUIRE(::getsockname(socket_->get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address_ = os::SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&address), length);
  }

  Channel& master() { return ends_.first; }
  [[nodiscard]] const SharedFd& socket() const { return socket_; }

  void begin(std::uint64_t id, const std::string& yaml) {
    auto bundle = seal_bundle("test.yaml", yaml, {});
    REQUIRE(bundle);
    master().send(BeginGeneration{id, share(std::move(*bundle)), null_file(), nullptr});
  }

  // A client that has connected, said `text` and ended its side.
  os::Fd client(const std::string& text) {
    os::Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(fd.get(), address_.data(), address_.size()) == 0);
    REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    REQUIRE(::shutdown(fd.get(), SHUT_WR) == 0);
    return fd;
  }

  // Runs the worker to its end; what it said.
  std::vector<Message> run() {
    Worker(std::move(ends_.second)).run();
    std::vector<Message> said;
    for (;;) {
      Received received = master().receive();
      if (received.kind != Received::Kind::message) return said;
      said.push_back(std::move(received.message));
    }
  }

 private:
  std::pair<Channel, Channel> ends_;
  SharedFd socket_;
  os::SocketAddress address_;
};

std::string refusal(const std::vector<Message>& said) {
  if (said.size() != 1) return "the worker said " + std::to_string(said.size()) + " things";
  const auto* refused = std::get_if<Refused>(&said[0]);
  return refused != nullptr ? refused->text : "not refused";
}

std::string all_from(const os::Fd& fd) {
  std::string text;
  char chunk[256];
  for (ssize_t got = 0; (got = ::read(fd.get(), chunk, sizeof(chunk))) > 0;) {
    text.append(chunk, static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

TEST_CASE("a worker prepares, applies, and ends when told to quit", "[worker]") {
  Play play;
  play.begin(1, kEcho);
  play.master().send(ListenSocket{1, 0, 0, play.socket()});
  play.master().send(Prepare{1});
  play.master().send(Commit{1});
  play.master().send(Ping{});
  play.master().send(Quit{});
  const auto said = play.run();
  REQUIRE(said.size() == 3);
  CHECK(std::get<Prepared>(said[0]).id == 1);
  CHECK(std::get<Applied>(said[1]).id == 1);
  CHECK(std::holds_alternative<Pong>(said[2]));
}

TEST_CASE("clients that wait in the accept queue are served before a worker quits", "[worker]") {
  Play play;
  const os::Fd first = play.client("one");
  const os::Fd second = play.client("two");
  play.begin(1, kEcho);
  play.master().send(ListenSocket{1, 0, 0, play.socket()});
  play.master().send(Prepare{1});
  play.master().send(Commit{1});
  play.master().send(Quit{});
  play.run();
  CHECK(all_from(first) == "one");
  CHECK(all_from(second) == "two");
}

TEST_CASE("the clients of a socket that a reload takes away are served before it is closed", "[worker]") {
  Play play;
  const os::Fd waiting = play.client("still served");
  play.begin(1, kEcho);
  play.master().send(ListenSocket{1, 0, 0, play.socket()});
  play.master().send(Prepare{1});
  play.master().send(Commit{1});
  play.begin(2, kEcho);
  play.master().send(Prepare{2});
  play.master().send(Commit{2});
  play.master().send(Quit{});
  const auto said = play.run();
  CHECK(said.size() == 4);
  CHECK(all_from(waiting) == "still served");
}

TEST_CASE("a configuration that cannot be used is refused with its first error", "[worker]") {
  Play play;
  play.begin(1, "listeners: 3\n");
  play.master().send(Prepare{1});
  play.master().send(Quit{});
  const std::string text = refusal(play.run());
  CHECK(text.starts_with("test.yaml:1:"));
}

TEST_CASE("a generation whose bundle is no bundle is refused", "[worker]") {
  Play play;
  play.master().send(BeginGeneration{1, null_file(), null_file(), nullptr});
  play.master().send(Prepare{1});
  play.master().send(Quit{});
  CHECK(refusal(play.run()).starts_with("cannot read the bundle of the configuration"));
}

TEST_CASE("a socket that the worker should have and has not is refused", "[worker]") {
  Play play;
  play.begin(1, kEcho);
  play.master().send(ListenSocket{77, 0, 0, nullptr});
  play.master().send(Prepare{1});
  play.master().send(Quit{});
  CHECK(refusal(play.run()) == "a socket that should be here is not");
}

TEST_CASE("a socket of a listener that does not exist is refused", "[worker]") {
  Play play;
  play.begin(1, kEcho);
  play.master().send(ListenSocket{1, 1, 0, play.socket()});
  play.master().send(Prepare{1});
  play.master().send(Quit{});
  CHECK(refusal(play.run()) == "a socket belongs to no listener");
}

TEST_CASE("an abandoned generation is forgotten: its commit changes nothing", "[worker]") {
  Play play;
  play.begin(1, kEcho);
  play.master().send(Prepare{1});
  play.master().send(Abandon{1});
  play.master().send(Commit{1});
  play.master().send(Quit{});
  const auto said = play.run();
  REQUIRE(said.size() == 1);
  CHECK(std::get<Prepared>(said[0]).id == 1);
}

TEST_CASE("a worker whose master is gone ends, sessions and all", "[worker]") {
  Play play;
  play.begin(1, kEcho);
  play.master().send(ListenSocket{1, 0, 0, play.socket()});
  play.master().send(Prepare{1});
  play.master().send(Commit{1});
  play.master().close();
  CHECK(play.run().empty());
}

TEST_CASE("the drain limit ends what would not end by itself", "[worker]") {
  Play play;
  os::Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  REQUIRE(::getsockname(play.socket()->get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(silent.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  play.begin(1,
             "listeners: [{name: l, bind: '127.0.0.1:0', to: e, timeouts: {linger: 100ms}}]\n"
             "backends: {e: {echo: true}}\n");
  play.master().send(ListenSocket{1, 0, 0, play.socket()});
  play.master().send(Prepare{1});
  play.master().send(Commit{1});
  play.master().send(Quit{std::chrono::milliseconds(50)});
  play.run();
  CHECK(all_from(silent).empty());
}
