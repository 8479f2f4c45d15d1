#include "relay/splice_pipe.h"

#include "support/catch.h"
#include "support/sockets.h"

using namespace tlsproxy;
using relay::PipePool;
using relay::SplicePipePtr;

namespace {

transport::Socket socket_over(os::Fd fd) {
  transport::Socket socket;
  socket.adopt(std::move(fd));
  return socket;
}

}  // namespace

TEST_CASE("a pipe carries bytes from one socket to another", "[splice]") {
  auto [writer, in] = support::connected_pair(true);
  auto [out, reader] = support::connected_pair(true);
  transport::Socket source = socket_over(std::move(in));
  transport::Socket sink = socket_over(std::move(out));
  PipePool pool;
  SplicePipePtr pipe = pool.take();
  REQUIRE(pipe != nullptr);
  REQUIRE(support::write_all(writer.get(), "through the kernel"));
  CHECK(pipe->fill(source).bytes == 18);
  CHECK(pipe->bytes() == 18);
  CHECK(pipe->drain(sink).bytes == 18);
  CHECK(support::read_available(reader.get()) == "through the kernel");
  CHECK(pipe->bytes() == 0);
  CHECK(pipe->fill(source).would_block());
  CHECK_FALSE(source.may_read());
  writer.reset();
  CHECK(pipe->fill(source).status == transport::IoStatus::end);
  pool.give_back(std::move(pipe));
}

TEST_CASE("an empty pipe given back is lent again, and closed when nobody wants it", "[splice]") {
  PipePool pool;
  pool.give_back(pool.take());
  CHECK(pool.free() == 1);
  SplicePipePtr again = pool.take();
  CHECK(pool.free() == 0);
  CHECK(pool.lent() == 1);
  pool.give_back(std::move(again));
  pool.trim();  // it was in use since the call before
  CHECK(pool.free() == 1);
  pool.trim();
  CHECK(pool.free() == 0);
}

TEST_CASE("a pipe that still holds bytes is not lent again", "[splice]") {
  auto [writer, in] = support::connected_pair(true);
  transport::Socket source = socket_over(std::move(in));
  PipePool pool;
  SplicePipePtr pipe = pool.take();
  REQUIRE(support::write_all(writer.get(), "of somebody else"));
  REQUIRE(pipe->fill(source).ok());
  pool.give_back(std::move(pipe));
  CHECK(pool.free() == 0);
}

TEST_CASE("pipes are lent up to a bound", "[splice]") {
  PipePool pool;
  std::vector<SplicePipePtr> lent;
  while (SplicePipePtr pipe = pool.take()) lent.push_back(std::move(pipe));
  CHECK(lent.size() <= PipePool::kMostLent);
  for (SplicePipePtr& pipe : lent) pool.give_back(std::move(pipe));
  CHECK(pool.free() <= PipePool::kMostFree);
  CHECK(pool.lent() == 0);
}
