#include "tls/memory.h"

#include <openssl/crypto.h>

#include <array>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/heap.h"
#include "support/sockets.h"
#include "support/tls.h"

// The program's entry point (support/main.cc) has called keep_record_memory().
using namespace tlsproxy;

namespace {

constexpr std::size_t kInputBuffer = 16716;  // as OpenSSL asks for them
constexpr std::size_t kOutputBuffer = 16584;

void empty_lists() {
  while (tls::trim_record_memory()) {
  }
}

}  // namespace

TEST_CASE("a session that rests between messages takes its record buffers without the heap", "[tls_memory]") {
  buffer::BlockPool pool(1U << 24);
  support::TlsPair pair(pool);
  std::array<std::byte, 256> room;
  const auto exchange = [&] {
    bool moved = pair.server.transport.write(support::as_bytes("ping")).ok();
    pair.client.socket.note(true, true, false);
    while (pair.client.transport.read(room).ok()) {
    }
    moved = moved && pair.client.transport.write(support::as_bytes("pong")).ok();
    pair.server.socket.note(true, true, false);
    return moved && pair.server.transport.read(room).bytes == 4 &&
           pair.server.transport.read(room).would_block();
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) REQUIRE(exchange());
  const std::uint64_t before = support::allocations();
  bool all_moved = true;
  for (int message = 0; message < 100; ++message) all_moved = exchange() && all_moved;
  const std::uint64_t after = support::allocations();
  CHECK(all_moved);
  CHECK(after == before);
  CHECK_FALSE(pair.server.transport.is_warm());
}

TEST_CASE("a record buffer given back serves the next taker, in either direction", "[tls_memory]") {
  empty_lists();
  void* const input = OPENSSL_malloc(kInputBuffer);
  OPENSSL_free(input);
  CHECK(tls::kept_record_memory() >= kInputBuffer);
  void* const output = OPENSSL_malloc(kOutputBuffer);
  CHECK(output == input);
  CHECK(tls::kept_record_memory() == 0);
  OPENSSL_free(output);
}

TEST_CASE("a handshake's message buffer is kept although it is made by a resize", "[tls_memory]") {
  empty_lists();
  void* const grown = OPENSSL_realloc(nullptr, 21848);
  OPENSSL_free(grown);
  CHECK(tls::kept_record_memory() == 21848);
  void* const again = OPENSSL_realloc(nullptr, 21848);
  CHECK(again == grown);
  OPENSSL_free(again);
}

TEST_CASE("what OpenSSL takes otherwise is not kept", "[tls_memory]") {
  empty_lists();
  for (const std::size_t size : std::array<std::size_t, 7>{41, 1000, 4096, 16384, 17000, 22000, 65536}) {
    OPENSSL_free(OPENSSL_malloc(size));
    CHECK(tls::kept_record_memory() == 0);
  }
}

TEST_CASE("only so much record memory is kept", "[tls_memory]") {
  empty_lists();
  std::vector<void*> buffers(1000);
  for (void*& buffer : buffers) buffer = OPENSSL_malloc(kInputBuffer);
  for (void* buffer : buffers) OPENSSL_free(buffer);
  CHECK(tls::kept_record_memory() >= 8 * kInputBuffer);
  CHECK(tls::kept_record_memory() <= 80 * kInputBuffer);
}

TEST_CASE("record memory that was kept for a whole interval is freed, what was used in it is not",
          "[tls_memory]") {
  empty_lists();
  void* const one = OPENSSL_malloc(kInputBuffer);
  void* const other = OPENSSL_malloc(kInputBuffer);
  OPENSSL_free(one);
  OPENSSL_free(other);
  // Both lists were empty at some time before this call.
  CHECK(tls::trim_record_memory());
  const std::size_t both = tls::kept_record_memory();
  OPENSSL_free(OPENSSL_malloc(kInputBuffer));
  CHECK(tls::trim_record_memory());
  CHECK(tls::kept_record_memory() == both / 2);
  CHECK_FALSE(tls::trim_record_memory());
  CHECK(tls::kept_record_memory() == 0);
}
