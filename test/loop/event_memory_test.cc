#include "loop/event_memory.h"

#include <event2/event.h>

#include <memory>
#include <vector>

#include "loop/io_event.h"
#include "loop/loop.h"
#include "support/catch.h"
#include "support/heap.h"
#include "support/sockets.h"

using namespace tlsproxy;

namespace {

struct Watcher {
  loop::IoEvent event;
  os::Fd fd;
  void on_news(loop::IoNews) {}
};

}  // namespace

TEST_CASE("watching a descriptor number for the first time takes nothing from the heap", "[loop][memory]") {
  support::count_allocations();
  loop::Loop loop;
  std::vector<std::unique_ptr<Watcher>> crowd;
  for (int i = 0; i < 300; ++i) {
    auto [one, other] = support::connected_pair();
    for (os::Fd* fd : {&one, &other}) {
      crowd.push_back(std::make_unique<Watcher>());
      crowd.back()->fd = std::move(*fd);
    }
  }
  const auto watch_all = [&] {
    for (auto& each : crowd) {
      each->event.start<&Watcher::on_news>(loop, each->fd.get(), loop::IoEvent::Trigger::edge_both, *each);
    }
  };
  const std::size_t before = loop::event_memory_bytes();
  const std::uint64_t allocations = support::allocations();
  watch_all();
  // The table of descriptors grows by doubling, and pieces come by the chunk.
  CHECK(support::allocations() - allocations <= 16);
  CHECK(loop::event_memory_bytes() - before <= 65536);
  for (auto& each : crowd) each->event.stop();
  const std::size_t after = loop::event_memory_bytes();
  watch_all();
  CHECK(loop::event_memory_bytes() == after);
  for (auto& each : crowd) each->event.stop();
}
