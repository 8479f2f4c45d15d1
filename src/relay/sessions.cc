#include "relay/sessions.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "log/log.h"
#include "loop/timer.h"
#include "record/access_log.h"
#include "relay/session.h"

namespace tlsproxy::relay {
namespace {

constexpr loop::Duration kCoolInterval{1000};

}  // namespace

struct Sessions::Impl final : SessionHost {
  Impl(loop::Loop& the_loop, buffer::BlockPool& the_pool, SpliceWhen splice)
      : loop_(&the_loop),
        means_{the_pool, pipes_, splice},
        next_id_(static_cast<std::uint64_t>(::getpid()) << 32U) {
    cool_timer_.bind<&Impl::cool>(*loop_, *this);
  }

  loop::Loop& loop() override { return *loop_; }
  Means& means() override { return means_; }

  void warmed_up(Session& session) override {
    if (warm_.empty() && !cool_timer_.armed()) cool_timer_.arm(kCoolInterval);
    warm_.push_back(session);
  }

  void ended(Session& session) override {
    if (log::access_enabled()) {
      log::access(record::format_line(session.record(), session.generation().config().log.access
                                                            ? session.generation().config().log.access->format
                                                            : config::LogFormat::logfmt));
    }
    const auto generation = find_generation(session.generation().id());
    if (--generation->sessions == 0) by_generation_.erase(generation);
    if (--count_ == 0) pipes_.close_free();  // nobody is left to splice: no descriptor stays behind
    static_cast<base::Hook<SessionTag>&>(session).unlink();
    static_cast<base::Hook<WarmTag>&>(session).unlink();
    static_cast<base::Hook<buffer::WaiterTag>&>(session).unlink();
    loop_->retire(std::unique_ptr<loop::Task>(&session));
  }

  void cool() {
    bool any = false;
    warm_.for_each([&any](Session& session) {
      if (session.cool()) {
        any = true;
      } else {
        static_cast<base::Hook<WarmTag>&>(session).unlink();
      }
    });
    if (any) cool_timer_.arm(kCoolInterval);
  }

  struct GenerationCount {
    std::uint64_t id;
    std::size_t sessions;
  };
  std::vector<GenerationCount>::iterator find_generation(std::uint64_t id) {
    return std::find_if(by_generation_.begin(), by_generation_.end(),
                        [id](const GenerationCount& generation) { return generation.id == id; });
  }
  void count_in_generation(std::uint64_t id) {
    auto generation = find_generation(id);
    if (generation == by_generation_.end()) generation = by_generation_.insert(generation, {id, 0});
    ++generation->sessions;
  }

  template <class Predicate>
  void close_if(Predicate predicate, record::CloseReason reason) {
    // Collected first: a session that ends leaves the list, and may take no other with it.
    std::vector<Session*> chosen;
    all_.for_each([&](Session& session) {
      if (predicate(session)) chosen.push_back(&session);
    });
    for (Session* session : chosen) session->close(reason, record::Side::proxy);
  }

  loop::Loop* loop_;
  PipePool pipes_;
  Means means_;
  std::uint64_t next_id_;
  std::size_t count_ = 0;
  std::vector<GenerationCount> by_generation_;  // of those that have sessions: rarely more than two
  base::IntrusiveList<Session, SessionTag> all_;
  base::IntrusiveList<Session, WarmTag> warm_;
  loop::Timer cool_timer_;
};

Sessions::Sessions(loop::Loop& loop, buffer::BlockPool& pool, SpliceWhen splice)
    : impl_(std::make_unique<Impl>(loop, pool, splice)) {}

Sessions::~Sessions() {
  while (!impl_->all_.empty()) impl_->all_.front().close(record::CloseReason::stopped, record::Side::proxy);
  impl_->loop_->destroy_retired();
}

void Sessions::open(os::Fd client, const os::SocketAddress& peer, std::shared_ptr<Generation> generation,
                    const Service& service) {
  const std::uint64_t generation_id = generation->id();
  // Owned by the list until ended() hands it to the loop.
  auto* session =
      new Session(*impl_, ++impl_->next_id_, std::move(client), peer, std::move(generation), service);
  impl_->all_.push_back(*session);
  ++impl_->count_;
  impl_->count_in_generation(generation_id);
  session->start();
}

std::size_t Sessions::size() const {
  return impl_->count_;
}

std::size_t Sessions::size_of_generation(std::uint64_t id) const {
  const auto found = impl_->find_generation(id);
  return found == impl_->by_generation_.end() ? 0 : found->sessions;
}

bool Sessions::trim() {
  impl_->pipes_.trim();
  return impl_->pipes_.free() > 0;
}

void Sessions::close_older_than(std::uint64_t id, record::CloseReason reason) {
  impl_->close_if([id](const Session& session) { return session.generation().id() < id; }, reason);
}

void Sessions::close_all(record::CloseReason reason) {
  impl_->close_if([](const Session&) { return true; }, reason);
}

}  // namespace tlsproxy::relay
