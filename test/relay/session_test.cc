#include "relay/session.h"

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "config/files.h"
#include "config/yaml_loader.h"
#include "relay/sessions.h"
#include "support/catch.h"
#include "support/faults.h"
#include "support/heap.h"
#include "support/sockets.h"
#include "support/tls.h"

using namespace tlsproxy;

namespace {

constexpr std::size_t kPlenty = 1U << 24;

// A worker in small: a loop, a pool, and the sessions of one listener.
struct Proxy {
  loop::Loop loop;
  buffer::BlockPool pool;
  std::shared_ptr<relay::Generation> generation;
  relay::Sessions sessions{loop, pool};

  explicit Proxy(const std::string& yaml, std::size_t budget = kPlenty) : pool(budget) {
    config::Diagnostics diagnostics("test.yaml");
    config::DiskFiles files("/");
    generation = relay::Generation::make(1, config::load_yaml(yaml, diagnostics), files, diagnostics);
    for (const std::string& line : diagnostics.lines()) UNSCOPED_INFO(line);
    REQUIRE(generation != nullptr);
    bool settled = false;
    generation->start(loop, [&settled] { settled = true; });
    REQUIRE(settled);
  }

  // The client's end of a new session.
  os::Fd connect() {
    auto [client, accepted] = support::connected_pair(true);
    open(std::move(accepted));
    return std::move(client);
  }
  void open(os::Fd accepted) {
    sessions.open(std::move(accepted), os::SocketAddress::parse("127.0.0.1:1").value(), generation,
                  *generation->services().front());
  }

  // Turns until `done` holds; false when it does not within the bound.
  bool turn_until(const std::function<bool()>& done) {
    loop::Timer tick;
    struct Tick {
      loop::Timer* timer;
      void fire() { timer->arm(loop::Duration{1}); }
    } owner{&tick};
    tick.bind<&Tick::fire>(loop, owner);
    tick.arm(loop::Duration{1});
    for (int turns = 0; turns < 5000; ++turns) {
      if (done()) return true;
      loop.turn();
    }
    return done();
  }
};

// A server that the test plays itself.
struct Server {
  os::Fd listener;
  std::uint16_t port = 0;
  Server() : listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(listener.get(), 8) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port = ntohs(address.sin_port);
  }
  os::Fd accept() {
    return os::Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
};

std::string plain_to(std::uint16_t port, const std::string& extra = "") {
  return "listeners: [{name: in, bind: '127.0.0.1:0', to: out" + extra +
         "}]\nbackends: {out: ['127.0.0.1:" + std::to_string(port) + "']}\n";
}

// What a new TLS client is told until the close_notify, which must come.
std::string tls_answer(Proxy& proxy, SSL_CTX* context) {
  buffer::BlockPool pool(kPlenty);
  support::TlsEnd client(pool);
  client.socket.adopt(proxy.connect());
  REQUIRE(client.transport.connect(context, "localhost"));
  bool shaken = false;
  std::string got;
  transport::IoStatus stopped = transport::IoStatus::would_block;
  CHECK(proxy.turn_until([&] {
    client.socket.note(true, true, false);
    if (!shaken) shaken = client.transport.handshake().ok();
    std::array<std::byte, 64> room;
    if (shaken) {
      const auto read = client.transport.read(room);
      stopped = read.status;
      if (read.ok()) got.append(reinterpret_cast<const char*>(room.data()), read.bytes);
    }
    return stopped == transport::IoStatus::end;
  }));
  return got;
}

bool at_end(int fd) {
  char byte;
  return ::recv(fd, &byte, 1, MSG_PEEK) == 0;
}

}  // namespace

TEST_CASE("a session relays both ways and ends when both sides have ended", "[session]") {
  Server server;
  Proxy proxy(plain_to(server.port));
  os::Fd client = proxy.connect();
  os::Fd backend;
  REQUIRE(proxy.turn_until([&] { return static_cast<bool>(backend = server.accept()); }));
  REQUIRE(support::write_all(client.get(), "question"));
  std::string got;
  CHECK(proxy.turn_until([&] { return (got += support::read_available(backend.get())) == "question"; }));
  REQUIRE(support::write_all(backend.get(), "answer"));
  got.clear();
  CHECK(proxy.turn_until([&] { return (got += support::read_available(client.get())) == "answer"; }));
  CHECK(proxy.pool.bytes_in_use() == 0);
  ::shutdown(client.get(), SHUT_WR);
  CHECK(proxy.turn_until([&] { return at_end(backend.get()); }));
  CHECK(proxy.sessions.size() == 1);
  ::shutdown(backend.get(), SHUT_WR);
  CHECK(proxy.turn_until([&] { return at_end(client.get()); }));
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("a reset that arrives together with the last bytes is noticed after them", "[session]") {
  Server server;
  Proxy proxy(plain_to(server.port));
  os::Fd client = proxy.connect();
  os::Fd backend;
  REQUIRE(proxy.turn_until([&] { return static_cast<bool>(backend = server.accept()); }));
  proxy.turn_until([] { return true; });
  REQUIRE(support::write_all(client.get(), "last"));
  const linger no_wait{1, 0};
  ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &no_wait, sizeof(no_wait));
  client.reset();
  std::string got;
  CHECK(proxy.turn_until([&] { return (got += support::read_available(backend.get())) == "last"; }));
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("without half_close the end of one side ends the session, after its bytes", "[session]") {
  Server server;
  Proxy proxy(plain_to(server.port, ", half_close: false"));
  os::Fd client = proxy.connect();
  os::Fd backend;
  REQUIRE(proxy.turn_until([&] { return static_cast<bool>(backend = server.accept()); }));
  REQUIRE(support::write_all(backend.get(), "bye"));
  ::shutdown(backend.get(), SHUT_WR);
  std::string got;
  CHECK(proxy.turn_until([&] {
    got += support::read_available(client.get());
    return got == "bye" && at_end(client.get());
  }));
  client.reset();
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("the next server is tried when connecting fails", "[session]") {
  Server down;
  const std::uint16_t refused = down.port;
  down.listener.reset();
  Server up;
  Proxy proxy("listeners: [{name: in, bind: '127.0.0.1:0', to: out}]\nbackends: {out: ['127.0.0.1:" +
              std::to_string(refused) + "', '127.0.0.1:" + std::to_string(up.port) + "']}\n");
  os::Fd client = proxy.connect();
  os::Fd backend;
  CHECK(proxy.turn_until([&] { return static_cast<bool>(backend = up.accept()); }));
}

TEST_CASE("when no server takes the connection its client is told the end", "[session]") {
  Server down;
  const std::uint16_t refused = down.port;
  down.listener.reset();
  Proxy proxy(plain_to(refused));
  os::Fd client = proxy.connect();
  CHECK(proxy.turn_until([&] { return at_end(client.get()); }));
  client.reset();
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("lack of descriptors for the backend ends its session, not the worker", "[session][faults]") {
  Server server;
  Proxy proxy(plain_to(server.port));
  support::Faults faults;
  faults.socket = {support::fails(EMFILE)};
  os::Fd unlucky = proxy.connect();
  CHECK(proxy.turn_until([&] { return at_end(unlucky.get()); }));
  os::Fd next = proxy.connect();
  os::Fd backend;
  CHECK(proxy.turn_until([&] { return static_cast<bool>(backend = server.accept()); }));
}

TEST_CASE("a client that leaves without a word while connecting is let go at once", "[session]") {
  Proxy proxy(plain_to(9));
  support::Faults faults;
  faults.connect = {support::fails(EINPROGRESS)};  // and never connects: the real call was not made
  os::Fd client = proxy.connect();
  REQUIRE(proxy.sessions.size() == 1);
  client.reset();
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("a silent session ends at its idle limit", "[session]") {
  Proxy proxy(
      "listeners: [{name: in, bind: '127.0.0.1:0', to: out, timeouts: {idle: 50ms, linger: 50ms}}]\n"
      "backends: {out: {echo: true}}\n");
  os::Fd client = proxy.connect();
  CHECK(proxy.turn_until([&] { return at_end(client.get()); }));
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("an echo backend gives back what it gets and ends after it", "[session]") {
  Proxy proxy("listeners: [{name: in, bind: '127.0.0.1:0', to: out}]\nbackends: {out: {echo: true}}\n");
  os::Fd client = proxy.connect();
  const std::string bytes = support::pattern(300000);
  std::size_t sent = 0;
  std::string got;
  CHECK(proxy.turn_until([&] {
    if (sent < bytes.size()) {
      const ssize_t took = ::send(client.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (took > 0) sent += static_cast<std::size_t>(took);
      if (sent == bytes.size()) ::shutdown(client.get(), SHUT_WR);
    }
    got += support::read_available(client.get());
    return sent == bytes.size() && got.size() == bytes.size() && at_end(client.get());
  }));
  CHECK(got == bytes);
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("a respond backend says its text over TLS and ends with close_notify", "[session]") {
  Proxy proxy(
      "listeners: [{name: in, bind: '127.0.0.1:0', to: out, tls: {certificates: [{self_signed: true}]}}]\n"
      "backends: {out: {respond: 'hello'}}\n");
  const auto context = support::client_context();
  CHECK(tls_answer(proxy, context.get()) == "hello");
}

TEST_CASE("a session that waits for a block goes on when one comes back", "[session]") {
  // One small block for all: two sessions take turns.
  Proxy proxy(
      "listeners: [{name: in, bind: '127.0.0.1:0', to: out, tls: {certificates: [{self_signed: true}]}}]\n"
      "backends: {out: {echo: true}}\n",
      4096);
  buffer::RelayBuffer hog;
  REQUIRE(hog.prepare(proxy.pool));
  os::Fd client = proxy.connect();
  REQUIRE(support::write_all(client.get(), "GET / HTTP/1.1\r\n"));
  for (int turns = 0; turns < 20; ++turns) proxy.turn_until([] { return true; });
  CHECK_FALSE(at_end(client.get()));
  hog.release(proxy.pool);
  CHECK(proxy.turn_until([&] { return at_end(client.get()); }));
}

TEST_CASE("an idle plain session costs less than 1 KiB of heap", "[session][budget]") {
  constexpr std::size_t kSessions = 100;
  Server server;
  Proxy proxy(plain_to(server.port));
  std::vector<os::Fd> ends;
  ends.reserve(2 * (kSessions + 1));
  const auto use_and_leave_idle = [&](os::Fd client) {
    os::Fd backend;
    REQUIRE(proxy.turn_until([&] { return static_cast<bool>(backend = server.accept()); }));
    REQUIRE(support::write_all(client.get(), "x"));
    REQUIRE(proxy.turn_until([&] { return !support::read_available(backend.get()).empty(); }));
    ends.push_back(std::move(client));
    ends.push_back(std::move(backend));
  };
  // The first pays for what all share: a block, and libevent's table of descriptors, as long as the highest.
  auto [client, accepted] = support::connected_pair(true);
  proxy.open(os::Fd(::fcntl(accepted.get(), F_DUPFD_CLOEXEC, 4 * static_cast<int>(kSessions) + 100)));
  use_and_leave_idle(std::move(client));
  const std::size_t before = support::heap_in_use();
  for (std::size_t i = 0; i < kSessions; ++i) use_and_leave_idle(proxy.connect());
  CHECK(proxy.sessions.size() == 1 + kSessions);
  CHECK((support::heap_in_use() - before) / kSessions < 1024);
}

TEST_CASE("a route may test what a client offers where no protocol is negotiated", "[session]") {
  Proxy proxy(
      "listeners: [{name: in, bind: '127.0.0.1:0', routes: [{alpn: h2, to: two}, {to: one}],\n"
      "             tls: {certificates: [{self_signed: true}]}}]\n"
      "backends: {one: {respond: 'one'}, two: {respond: 'two'}}\n");
  const auto context = support::client_context();
  const std::string offered("\x08http/1.1\x02h2");
  REQUIRE(SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(offered.data()),
                                  static_cast<unsigned>(offered.size())) == 0);
  CHECK(tls_answer(proxy, context.get()) == "two");
}

TEST_CASE("closing all sessions from outside ends each in order", "[session]") {
  Proxy proxy("listeners: [{name: in, bind: '127.0.0.1:0', to: out}]\nbackends: {out: {echo: true}}\n");
  os::Fd one = proxy.connect();
  os::Fd other = proxy.connect();
  proxy.sessions.close_older_than(1, record::CloseReason::drain);
  CHECK(proxy.sessions.size() == 2);
  proxy.sessions.close_older_than(2, record::CloseReason::drain);
  CHECK(proxy.turn_until([&] { return at_end(one.get()) && at_end(other.get()); }));
  one.reset();
  other.reset();
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
}

TEST_CASE("sessions survive random faults: bytes arrive whole, or the session ends", "[session][faults]") {
  const std::uint64_t base = GENERATE(range<std::uint64_t>(1, 21));
  Proxy proxy(
      "listeners: [{name: in, bind: '127.0.0.1:0', to: out, timeouts: {idle: 300ms, linger: 20ms}}]\n"
      "backends: {out: {echo: true}}\n");
  support::Faults faults;
  support::Odds odds;
  // No made-up EAGAIN or short count: the kernel would owe the loop no edge for it. Those are drawn in the
  // tests of flow and transport, which set the ready bits themselves.
  odds.again = odds.short_io = 0;
  odds.reset = 5;
  odds.no_buffer = 5;
  const std::uint64_t seed = faults.randomize(base, odds);
  CAPTURE(seed);
  const std::string bytes = support::pattern(100000, seed);
  os::Fd client = proxy.connect();
  std::size_t sent = 0;
  std::string got;
  proxy.turn_until([&] {
    const ssize_t took = ::send(client.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (took > 0) sent += static_cast<std::size_t>(took);
    got += support::read_available(client.get());
    return proxy.sessions.size() == 0 || got.size() == bytes.size();
  });
  CHECK(bytes.starts_with(got));
  CHECK((proxy.sessions.size() == 0 || got.size() == bytes.size()));
  client.reset();
  CHECK(proxy.turn_until([&] { return proxy.sessions.size() == 0; }));
  CHECK(proxy.pool.bytes_in_use() == 0);
}
