#include "relay/flow.h"

#include <array>
#include <memory>
#include <string>

#include "support/catch.h"
#include "support/faults.h"
#include "support/heap.h"
#include "support/sockets.h"
#include "support/tls.h"

using namespace tlsproxy;
using buffer::BlockPool;
using buffer::BlockSize;
using record::Side;
using relay::Flow;
using relay::Leg;
using transport::IoStatus;

namespace {

constexpr std::size_t kPlenty = 1U << 26;

// A flow between two plain sockets, whose far ends the test holds.
struct PlainFlow {
  BlockPool pool;
  relay::PipePool pipes;
  relay::Means means{pool, pipes};
  Leg source{Side::client};
  Leg sink{Side::backend};
  Flow flow{source, sink};
  os::Fd writer;
  os::Fd reader;

  explicit PlainFlow(std::size_t budget = kPlenty,
                     const BlockPool::Capacities& sizes = BlockPool::kCapacities, bool tcp = false)
      : pool(budget, sizes) {
    auto [a, b] = support::connected_pair(tcp);
    auto [c, d] = support::connected_pair(tcp);
    writer = std::move(a);
    source.socket().adopt(std::move(b));
    sink.socket().adopt(std::move(c));
    reader = std::move(d);
    source.use<transport::Plain>(source.socket());
    sink.use<transport::Plain>(sink.socket());
  }
  ~PlainFlow() { flow.discard(means); }

  Flow::Progress pump(std::size_t budget = kPlenty) {
    source.socket().note(true, true, false);
    sink.socket().note(true, true, false);
    return flow.pump(means, budget);
  }

  // Writes `bytes` at one end while reading at the other; what arrived.
  std::string carry(const std::string& bytes) {
    std::size_t sent = 0;
    std::string arrived;
    for (int turn = 0; turn < 100000 && arrived.size() < bytes.size(); ++turn) {
      const ssize_t took = ::send(writer.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (took > 0) sent += static_cast<std::size_t>(took);
      if (pump() != Flow::Progress::blocked) break;
      arrived += support::read_available(reader.get());
    }
    return arrived;
  }
};

// The same with TLS on the source's side, the sink's side or both; far ends as TLS transports.
struct TlsFlow {
  BlockPool pool;
  relay::PipePool pipes;
  relay::Means means{pool, pipes};
  tls::SslCtxPtr server_ctx = support::server_context();
  tls::SslCtxPtr client_ctx = support::client_context();
  Leg source{Side::client};
  Leg sink{Side::backend};
  Flow flow{source, sink};
  support::TlsEnd writer{pool};
  support::TlsEnd reader{pool};

  // `settle`: all ends let go of OpenSSL after the handshake.
  explicit TlsFlow(const BlockPool::Capacities& sizes = BlockPool::kCapacities, bool settle = true)
      : pool(kPlenty, sizes) {
    join(source, writer, settle);
    join(sink, reader, settle);
  }
  ~TlsFlow() { flow.discard(means); }

  void join(Leg& leg, support::TlsEnd& far, bool settle) {
    auto [one, other] = support::connected_pair();
    leg.socket().adopt(std::move(one));
    far.socket.adopt(std::move(other));
    auto& near = leg.use<tls::Transport>(leg.socket(), pool);
    if (!near.accept(server_ctx.get(), {}, "localhost") ||
        !far.transport.connect(client_ctx.get(), "localhost")) {
      throw std::runtime_error("OpenSSL has memory");
    }
    bool near_done = false;
    bool far_done = false;
    for (int round = 0; round < 5000 && !(near_done && far_done); ++round) {
      leg.socket().note(true, true, false);
      far.socket.note(true, true, false);
      if (!far_done) far_done = far.transport.handshake().ok();
      if (!near_done) near_done = near.handshake().ok();
      static_cast<void>(near.flush());
      static_cast<void>(far.transport.flush());
    }
    if (!near_done || !far_done) throw std::runtime_error("a handshake completes");
    if (settle) near.settle();
    if (settle) far.transport.settle();
  }

  Flow::Progress pump(std::size_t budget = kPlenty) {
    for (support::TlsEnd* end : {&writer, &reader}) end->socket.note(true, true, false);
    source.socket().note(true, true, false);
    sink.socket().note(true, true, false);
    return flow.pump(means, budget);
  }

  std::string read_far(std::size_t limit, IoStatus& stopped) {
    std::string all;
    std::vector<std::byte> room(65536);
    while (all.size() < limit) {
      const auto got = reader.transport.read(room);
      stopped = got.status;
      if (!got.ok()) break;
      all.append(reinterpret_cast<const char*>(room.data()), got.bytes);
    }
    return all;
  }
};

}  // namespace

TEST_CASE("a flow that has nothing to carry holds no block", "[flow]") {
  PlainFlow f;
  REQUIRE(support::write_all(f.writer.get(), "ping"));
  CHECK(f.pump() == Flow::Progress::blocked);
  CHECK(support::read_available(f.reader.get()) == "ping");
  CHECK(f.pool.bytes_in_use() == 0);
}

TEST_CASE("a chat is carried in 4 KiB, a download in 64 KiB, and after a pause in 4 KiB again", "[flow]") {
  PlainFlow f;
  REQUIRE(support::write_all(f.writer.get(), "ping"));
  CHECK(f.pump() == Flow::Progress::blocked);
  CHECK(f.flow.buffer().wish() == BlockSize::small);
  for (int turn = 0; turn < 6; ++turn) {
    REQUIRE(support::write_all(f.writer.get(), std::string(65536, 'x')));
    CHECK(f.pump() == Flow::Progress::blocked);
    support::read_available(f.reader.get());
  }
  CHECK(f.flow.buffer().wish() == BlockSize::large);
  CHECK(f.pool.bytes_in_use() == 0);
  for (int turn = 0; turn < 5; ++turn) {
    REQUIRE(support::write_all(f.writer.get(), "ping"));
    CHECK(f.pump() == Flow::Progress::blocked);
  }
  CHECK(f.flow.buffer().wish() == BlockSize::small);
}

TEST_CASE("bulk between plain legs is spliced, and what follows a pause is copied again", "[flow][splice]") {
  PlainFlow f(kPlenty, BlockPool::kCapacities, true);
  support::Faults faults;
  const std::string bytes = support::pattern(8U << 20);
  CHECK(f.carry(bytes) == bytes);
  CHECK(faults.counts().splice > 0);
  CHECK(faults.counts().recv < 20);
  CHECK(f.pipes.lent() == 0);
  for (int turn = 0; turn < 5; ++turn) {
    REQUIRE(support::write_all(f.writer.get(), "ping"));
    REQUIRE(f.pump() == Flow::Progress::blocked);
  }
  const std::size_t spliced = faults.counts().splice;
  REQUIRE(support::write_all(f.writer.get(), "ping"));
  REQUIRE(f.pump() == Flow::Progress::blocked);
  CHECK(faults.counts().splice == spliced);
  CHECK(f.pipes.lent() == 0);
}

TEST_CASE("a spliced stream ends, stalls and breaks like a copied one", "[flow][splice]") {
  PlainFlow f(kPlenty, BlockPool::kCapacities, true);
  support::Faults faults;
  const std::string bytes(1U << 20, 'x');
  // A reader that takes nothing: the flow stops with one pipe.
  std::size_t sent = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const ssize_t took = ::send(f.writer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (took > 0) sent += static_cast<std::size_t>(took);
    static_cast<void>(f.pump());
  }
  REQUIRE(f.flow.has_undelivered());
  CHECK(f.pipes.lent() <= 1);
  SECTION("the end comes after every byte") {
    f.writer.reset();
    std::size_t arrived = 0;
    Flow::Progress progress = Flow::Progress::blocked;
    for (int turn = 0; turn < 10000 && progress != Flow::Progress::ended; ++turn) {
      progress = f.pump();
      arrived += support::read_available(f.reader.get()).size();
    }
    arrived += support::read_available(f.reader.get()).size();
    CHECK(progress == Flow::Progress::ended);
    CHECK(arrived == sent);
  }
  SECTION("a sink that fails costs the pipe, and nothing leaks") {
    faults.splice = {support::fails(EPIPE)};
    faults.send = {support::fails(EPIPE)};
    CHECK(f.pump() == Flow::Progress::failed);
    CHECK(f.pipes.lent() == 0);
    CHECK(f.pool.bytes_in_use() == 0);
  }
}

TEST_CASE("without pipes bulk is copied", "[flow][splice]") {
  PlainFlow f(kPlenty, BlockPool::kCapacities, true);
  std::vector<relay::SplicePipePtr> taken;
  while (auto pipe = f.pipes.take()) taken.push_back(std::move(pipe));
  const std::string bytes = support::pattern(2U << 20);
  CHECK(f.carry(bytes) == bytes);
  for (auto& pipe : taken) f.pipes.give_back(std::move(pipe));
}

TEST_CASE("a reader that takes nothing stops the flow at one block", "[flow]") {
  PlainFlow f;
  std::size_t accepted = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const ssize_t sent = ::send(f.writer.get(), std::string(65536, 'x').data(), 65536, MSG_NOSIGNAL);
    if (sent > 0) accepted += static_cast<std::size_t>(sent);
    static_cast<void>(f.pump());
  }
  CHECK(f.pool.bytes_in_use() <= 65536);
  CHECK(accepted < 100 * 65536);
  CHECK(f.flow.has_undelivered());
}

TEST_CASE("a flow gives way when its budget is spent, and goes on where it stopped", "[flow]") {
  PlainFlow f;
  REQUIRE(support::write_all(f.writer.get(), std::string(20000, 'x')));
  CHECK(f.pump(4096) == Flow::Progress::out_of_budget);
  CHECK(f.flow.bytes_out() == 4096);
  CHECK(f.pump() == Flow::Progress::blocked);
  CHECK(f.flow.bytes_out() == 20000);
}

TEST_CASE("an end is reported only after every byte before it was taken", "[flow]") {
  PlainFlow f;
  support::Faults faults;
  REQUIRE(support::write_all(f.writer.get(), "last words"));
  f.writer.reset();
  faults.send = {support::moves(3), support::fails(EAGAIN), support::moves(2)};
  f.source.socket().note(true, true, true);
  std::size_t budget = kPlenty;
  CHECK(f.flow.pump(f.means, budget) == Flow::Progress::blocked);
  for (int turn = 0; turn < 4; ++turn) static_cast<void>(f.pump());
  CHECK(f.pump() == Flow::Progress::ended);
  CHECK(f.flow.source_end().status == IoStatus::end);
  CHECK(support::read_available(f.reader.get()) == "last words");
}

TEST_CASE("what a leg sent before its reset is delivered, then the reset is reported", "[flow]") {
  PlainFlow f;
  support::Faults faults;
  REQUIRE(support::write_all(f.writer.get(), "before the reset"));
  faults.recv = {support::moves(100), support::fails(ECONNRESET)};
  CHECK(f.pump() == Flow::Progress::blocked);
  CHECK(f.pump() == Flow::Progress::ended);
  CHECK(f.flow.source_end().status == IoStatus::reset);
  CHECK(support::read_available(f.reader.get()) == "before the reset");
}

TEST_CASE("a sink that fails ends the flow and frees its block", "[flow]") {
  const int error = GENERATE(ECONNRESET, EPIPE, ENOBUFS);
  PlainFlow f;
  support::Faults faults;
  REQUIRE(support::write_all(f.writer.get(), "unwanted"));
  faults.send = {support::fails(error)};
  CHECK(f.pump() == Flow::Progress::failed);
  CHECK(f.flow.sink_end().error == error);
  CHECK(f.pool.bytes_in_use() == 0);
  CHECK(f.pump() == Flow::Progress::failed);
}

TEST_CASE("an end that follows a reset seen by a write is not taken for an orderly one", "[flow]") {
  PlainFlow f(kPlenty, BlockPool::kCapacities, true);
  Flow back{f.sink, f.source};
  support::Faults faults;
  REQUIRE(support::write_all(f.writer.get(), "hello"));
  faults.send = {support::fails(EPIPE)};
  CHECK(f.pump() == Flow::Progress::failed);
  f.reader.reset();
  f.sink.socket().note(true, true, true);
  std::size_t budget = kPlenty;
  CHECK(back.pump(f.means, budget) == Flow::Progress::ended);
  CHECK(back.source_end().status == IoStatus::reset);
  back.discard(f.means);
}

TEST_CASE("a flow refused a block says so, and goes on when there is one", "[flow]") {
  PlainFlow f(16, {16, 32, 64});
  buffer::RelayBuffer hog;
  REQUIRE(hog.prepare(f.pool));
  REQUIRE(support::write_all(f.writer.get(), "patience"));
  CHECK(f.pump() == Flow::Progress::blocked);
  CHECK(f.flow.take_starved());
  CHECK_FALSE(f.flow.take_starved());
  hog.release(f.pool);
  CHECK(f.pump() == Flow::Progress::blocked);
  CHECK(support::read_available(f.reader.get()) == "patience");
}

TEST_CASE("a plain flow carries every byte in order under random faults", "[flow][faults]") {
  const std::uint64_t base = GENERATE(range<std::uint64_t>(1, 31));
  PlainFlow f(kPlenty, {16, 64, 512});
  support::Faults faults;
  const std::uint64_t seed = faults.randomize(base, {});
  CAPTURE(seed);
  const std::string bytes = support::pattern(60000, seed);
  std::string arrived;
  std::size_t sent = 0;
  Flow::Progress progress = Flow::Progress::blocked;
  for (int round = 0; round < 100000 && progress != Flow::Progress::ended; ++round) {
    if (f.writer) {
      const ssize_t took = ::send(f.writer.get(), bytes.data() + sent,
                                  std::min<std::size_t>(3000, bytes.size() - sent), MSG_NOSIGNAL);
      if (took > 0) sent += static_cast<std::size_t>(took);
      if (sent == bytes.size()) f.writer.reset();
    }
    progress = f.pump(1000);
    REQUIRE(progress != Flow::Progress::failed);
    arrived += support::read_available(f.reader.get());
  }
  CHECK(arrived == bytes);
  CHECK(progress == Flow::Progress::ended);
  CHECK(f.pool.bytes_in_use() == 0);
}

TEST_CASE("a TLS to TLS flow carries every byte in order under random faults", "[flow][tls][faults]") {
  const std::uint64_t base = GENERATE(range<std::uint64_t>(1, 11));
  TlsFlow f({64, 256, 16384}, GENERATE(false, true));
  support::Faults faults;
  const std::uint64_t seed = faults.randomize(base, {});
  CAPTURE(seed);
  const std::string bytes = support::pattern(50000, seed);
  std::string arrived;
  std::size_t sent = 0;
  Flow::Progress progress = Flow::Progress::blocked;
  IoStatus stopped = IoStatus::would_block;
  for (int round = 0; round < 200000 && arrived.size() < bytes.size(); ++round) {
    progress = f.pump(2000);
    REQUIRE(progress != Flow::Progress::failed);
    if (sent < bytes.size()) {
      sent += f.writer.transport.write(support::as_bytes(bytes).subspan(sent)).bytes;
    } else {
      static_cast<void>(f.writer.transport.shutdown());
    }
    arrived += f.read_far(bytes.size(), stopped);
  }
  CHECK(arrived == bytes);
  for (int round = 0; round < 1000 && progress != Flow::Progress::ended; ++round) {
    static_cast<void>(f.writer.transport.shutdown());
    progress = f.pump();
  }
  CHECK(progress == Flow::Progress::ended);
  CHECK(f.flow.source_end().status == IoStatus::end);
}

TEST_CASE("a reset at any call ends a flow with what came before it, never with more or other bytes",
          "[flow][faults]") {
  const std::uint64_t base = GENERATE(range<std::uint64_t>(1, 41));
  PlainFlow f(kPlenty, {16, 64, 512});
  support::Faults faults;
  support::Odds odds;
  odds.reset = 30;
  odds.no_buffer = 10;
  const std::uint64_t seed = faults.randomize(base, odds);
  CAPTURE(seed);
  const std::string bytes = support::pattern(20000, seed);
  std::string arrived;
  std::size_t sent = 0;
  Flow::Progress progress = Flow::Progress::blocked;
  for (int round = 0; round < 50000; ++round) {
    const ssize_t took = ::send(f.writer.get(), bytes.data() + sent,
                                std::min<std::size_t>(500, bytes.size() - sent), MSG_NOSIGNAL);
    if (took > 0) sent += static_cast<std::size_t>(took);
    progress = f.pump(1000);
    arrived += support::read_available(f.reader.get());
    if (progress == Flow::Progress::ended || progress == Flow::Progress::failed ||
        arrived.size() == bytes.size())
      break;
  }
  CHECK(bytes.starts_with(arrived));
  if (progress == Flow::Progress::ended) CHECK(arrived.size() == f.flow.bytes_in());
  f.flow.discard(f.means);
  CHECK(f.pool.bytes_in_use() == 0);
}

TEST_CASE("relaying allocates nothing per byte once its blocks are taken", "[flow][budget]") {
  const std::string bytes(65536, 'x');
  std::uint64_t before = 0;
  SECTION("plain to plain") {
    PlainFlow f;
    for (int turn = 0; turn < 24; ++turn) {
      if (turn == 8) before = support::allocations();
      REQUIRE(support::write_all(f.writer.get(), bytes));
      REQUIRE(f.pump() == Flow::Progress::blocked);
      std::array<char, 65536> drop;
      while (::recv(f.reader.get(), drop.data(), drop.size(), 0) > 0) {
      }
    }
    CHECK(support::allocations() == before);
  }
  SECTION("TLS to TLS") {
    TlsFlow f(BlockPool::kCapacities, GENERATE(false, true));
    std::vector<std::byte> room(65536);
    for (int turn = 0; turn < 24; ++turn) {
      if (turn == 8) before = support::allocations();
      std::size_t sent = 0;
      std::size_t arrived = 0;
      for (int round = 0; round < 100 && arrived < bytes.size(); ++round) {
        if (sent < bytes.size())
          sent += f.writer.transport.write(support::as_bytes(bytes).subspan(sent)).bytes;
        static_cast<void>(f.pump());
        for (auto got = f.reader.transport.read(room); got.ok(); got = f.reader.transport.read(room)) {
          arrived += got.bytes;
        }
      }
      REQUIRE(arrived == bytes.size());
    }
    CHECK(support::allocations() == before);
  }
}
