#include "generator.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

namespace tlsproxy::load {
namespace {

constexpr std::size_t kOpeningAtOnce = 64;
constexpr Nanoseconds kRecovery = 10'000'000;
constexpr Nanoseconds kCheckEvery = kSecond;
constexpr std::size_t kReadSize = std::size_t{64} * 1024;
constexpr std::uint64_t kHopelessRounds = 20;

// Tags are the slots; these two are none.
constexpr std::uint64_t kStopTag = ~std::uint64_t{0};
constexpr std::uint64_t kGoAheadTag = kStopTag - 1;

void announce(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}

std::vector<os::SocketAddress> source_addresses(unsigned count) {
  std::vector<os::SocketAddress> sources;
  if (count == 1) return {os::SocketAddress()};
  for (unsigned i = 1; i <= count; ++i) {
    sources.push_back(*os::SocketAddress::from_ip("127.0.0." + std::to_string(i), 0));
  }
  return sources;
}

std::optional<Schedule> schedule_of(const Options& options) {
  if (options.mode == Mode::idle) return Schedule::even(static_cast<double>(options.connections));
  if (options.rate > 0) return Schedule::poisson(options.rate, options.seed);
  return std::nullopt;
}

}  // namespace

base::Result<std::unique_ptr<Generator>> Generator::make(const Options& options) {
  std::optional<TlsClient> tls;
  if (options.tls) {
    auto made = TlsClient::make(options.tls_options);
    if (!made) return tl::unexpected(made.error());
    tls = std::move(*made);
  }
  auto poller = Poller::make();
  if (!poller) return tl::unexpected(poller.error());
  return std::unique_ptr<Generator>(new Generator(options, std::move(tls), std::move(*poller)));
}

Generator::Generator(const Options& options, std::optional<TlsClient> tls, Poller poller)
    : options_(options),
      tls_(std::move(tls)),
      poller_(std::move(poller)),
      commons_{.options = options_,
               .workload = workload_of(options_),
               .tls = tls_ ? &*tls_ : nullptr,
               .sources = source_addresses(options_.sources),
               .poller = poller_,
               .out_block = std::vector<std::uint8_t>(std::max(options_.payload, kStreamBlock)),
               .in_buffer = std::vector<std::uint8_t>(kReadSize),
               .traffic = {}},
      schedule_(schedule_of(options_)),
      slots_(options_.connections),
      idle_(options_.connections),
      paused_(options_.connections),
      ready_(options_.connections) {
  for (std::uint32_t slot = 0; slot < options_.connections; ++slot) {
    connections_.emplace_back(slot, commons_, static_cast<ConnectionOwner&>(*this));
  }
}

base::Status Generator::run(int stop) {
  if (!poller_.add(stop, kStopTag, EPOLLIN)) return base::system_failure("epoll_ctl", errno);
  next_check_ = now() + kCheckEvery;
  if (commons_.workload.session_each) {
    for (std::uint32_t slot = 0; slot < options_.connections; ++slot) idle_.push(slot);
    begin_load();
  }
  while (phase_ != Phase::ended) turn();
  if (!hopeless_.empty()) return base::failure(hopeless_);
  return {};
}

void Generator::turn() {
  if (phase_ == Phase::opening) open_some();
  serve_events();
  const Nanoseconds time = now();
  advance_phase(time);
  end_pauses(time);
  start_due(time);
  if (time >= next_check_) fail_stuck(time);
}

void Generator::serve_events() {
  for (const epoll_event& event : poller_.wait(deadline())) {
    if (event.data.u64 == kStopTag) {
      interrupted_ = phase_ != Phase::held;
      end();
      return;
    }
    if (event.data.u64 == kGoAheadTag) {
      poller_.remove(STDIN_FILENO);
      begin_load();
      continue;
    }
    serve(static_cast<std::uint32_t>(event.data.u64), event.events);
  }
  for (std::size_t count = ready_.size(); count > 0; --count) {
    const std::uint32_t slot = ready_.pop();
    slots_[slot].is_queued = false;
    if (connections_[slot].has_more()) serve(slot, 0);
  }
}

void Generator::serve(std::uint32_t slot, std::uint32_t events) {
  connections_[slot].serve(events);
  serve_again(connections_[slot]);
}

// In the next turn, if there is something left that no event will tell of.
void Generator::serve_again(const Connection& connection) {
  Slot& slot = slots_[connection.index()];
  if (!connection.has_more() || slot.is_queued) return;
  slot.is_queued = true;
  ready_.push(connection.index());
}

// The next instant at which something is to be done without an event.
Nanoseconds Generator::deadline() const {
  if (!ready_.empty() || (phase_ == Phase::opening && can_open())) return 0;
  Nanoseconds next = next_check_;
  if (phase_ == Phase::warming) next = std::min(next, window_begin_);
  if (phase_ == Phase::measuring) next = std::min(next, window_end_);
  if (!paused_.empty()) next = std::min(next, paused_.front().until);
  const bool under_load = phase_ != Phase::opening && phase_ != Phase::held;
  if (under_load && !idle_.empty()) {
    const Nanoseconds start = schedule_ ? schedule_->next() : 0;
    if (start < window_end_) next = std::min(next, start);
  }
  return next;
}

// --- opening ------------------------------------------------------------------------------------

bool Generator::can_open() const {
  return asked_to_open_ < connections_.size() && asked_to_open_ - settled_ < kOpeningAtOnce;
}

void Generator::open_some() {
  for (std::size_t i = 0; i < kOpeningAtOnce && can_open(); ++i) {
    Connection& connection = connections_[asked_to_open_++];
    connection.open(now());
    serve_again(connection);
  }
}

void Generator::opened(Connection& connection) {
  if (!tls_facts_ && connection.ssl() != nullptr) tls_facts_ = facts_of(connection.ssl());
  if (commons_.workload.session_each) {
    connection.begin(connection.intended());
  } else if (options_.hold_echo) {
    connection.begin(now());
  } else {
    settle(connection, true);
  }
}

// A persistent connection is open, or never will be.
void Generator::settle(Connection& connection, bool open) {
  settled_ += 1;
  if (open) {
    slots_[connection.index()].is_up = true;
    open_ += 1;
    idle_.push(connection.index());
  }
  if (settled_ < connections_.size()) return;
  if (open_ == 0) {
    hopeless_ = "no connection could be opened";
    end();
  } else if (options_.mode == Mode::idle) {
    hold();
  } else {
    begin_load();
  }
}

void Generator::hold() {
  phase_ = Phase::held;
  announce(("held " + std::to_string(open_)).c_str());
  // A file, or /dev/null, cannot be waited for: it is its own go-ahead.
  if (!poller_.add(STDIN_FILENO, kGoAheadTag, EPOLLIN)) begin_load();
}

// --- pace ---------------------------------------------------------------------------------------

void Generator::begin_load() {
  if (options_.mode == Mode::idle && !options_.tick) return end();
  const Nanoseconds time = now();
  phase_ = Phase::warming;
  window_begin_ = time + from_seconds(options_.warmup);
  window_end_ = window_begin_ + from_seconds(options_.seconds);
  if (schedule_) schedule_->begin(time);
}

// Slots are the limit of what is under way; an instant that finds none free is served late, and its
// latency says so.
void Generator::start_due(Nanoseconds time) {
  if (phase_ != Phase::warming && phase_ != Phase::measuring && phase_ != Phase::draining) return;
  for (std::size_t i = 0; i < kOpeningAtOnce && !idle_.empty(); ++i) {
    const Nanoseconds intended = schedule_ ? schedule_->next() : now();
    if (schedule_ && (intended > time || intended >= window_end_)) return;
    const std::uint32_t slot = idle_.pop();
    if (!commons_.workload.session_each && !slots_[slot].is_up) continue;  // it failed meanwhile
    if (!schedule_) {
      start(slot, intended);
      continue;
    }
    schedule_->advance();
    if (is_in_window(intended)) {
      measurement_.start_delay.add(now() - intended);
      owed_ += 1;
    }
    start(slot, intended);
  }
}

void Generator::start(std::uint32_t slot, Nanoseconds intended) {
  Connection& connection = connections_[slot];
  slots_[slot].under_way = true;
  if (commons_.workload.session_each) {
    connection.open(intended);
  } else {
    connection.begin(intended);
  }
  serve_again(connection);
}

void Generator::completed(Connection& connection, std::uint64_t operations) {
  failures_in_a_row_ = 0;
  if (phase_ == Phase::opening) {
    if (options_.hold_echo) settle(connection, true);
    return;
  }
  record(connection, operations);
  if (is_stream(commons_.workload.exchange)) return;  // a stream goes on by itself
  slots_[connection.index()].under_way = false;
  if (commons_.workload.session_each) {
    connection.finish();
  } else if (schedule_) {
    idle_.push(connection.index());
  } else if (options_.think > 0) {
    pause(connection.index(), from_seconds(options_.think));
  } else {
    slots_[connection.index()].under_way = true;
    connection.begin(now());
  }
}

void Generator::finished(Connection& connection) {
  idle_.push(connection.index());
}

void Generator::failed(Connection& connection, Cause cause) {
  if (phase_ == Phase::ended) return;
  failures_[index_of(cause)] += 1;
  Slot& slot = slots_[connection.index()];
  if (slot.under_way) forgo(connection, cause);
  slot.under_way = false;
  if (commons_.workload.session_each) {
    failures_in_a_row_ += 1;
    if (failures_in_a_row_ > kHopelessRounds * options_.connections) {
      hopeless_ = "nothing but failures, the last: " + std::string(kCauseNames[index_of(cause)]);
      return end();
    }
    return pause(connection.index(), kRecovery);
  }
  if (!slot.is_up) return settle(connection, false);
  slot.is_up = false;
  open_ -= 1;
  if (open_ > 0 || phase_ == Phase::opening) return;
  hopeless_ = "all connections have failed";
  end();
}

// All pauses of a run are equally long, so they end in the order in which they began.
void Generator::pause(std::uint32_t slot, Nanoseconds length) {
  paused_.push({now() + length, slot});
}

void Generator::end_pauses(Nanoseconds time) {
  while (!paused_.empty() && paused_.front().until <= time) idle_.push(paused_.pop().slot);
}

void Generator::fail_stuck(Nanoseconds time) {
  next_check_ = time + kCheckEvery;
  const Nanoseconds since = time - from_seconds(options_.timeout);
  for (Connection& connection : connections_) {
    if (connection.is_stuck(since)) connection.fail(connection.cause_when_stuck());
  }
}

// --- the window ---------------------------------------------------------------------------------

void Generator::advance_phase(Nanoseconds time) {
  if (phase_ == Phase::warming && time >= window_begin_) {
    if (options_.announce) announce("measuring");
    phase_ = Phase::measuring;
    measurement_.open = open_;
    measurement_.begin = take_snapshot();
  }
  if (phase_ == Phase::measuring && time >= window_end_) {
    close_window();
    phase_ = schedule_ ? Phase::draining : Phase::ended;
  }
  if (phase_ != Phase::draining) return;
  const bool all_started = schedule_->next() >= window_end_;
  if (all_started && owed_ == 0) return end();
  if (time >= window_end_ + from_seconds(options_.timeout)) {
    give_up_unfinished(time);
    end();
  }
}

// Those under way, and those that were never started for want of a slot.
void Generator::give_up_unfinished(Nanoseconds time) {
  for (const Connection& connection : connections_) {
    if (!slots_[connection.index()].under_way || !is_in_window(connection.intended())) continue;
    measurement_.unfinished += 1;
    measurement_.latency.add(time - connection.intended());
  }
  for (; schedule_->next() < window_end_; schedule_->advance()) {
    if (!is_in_window(schedule_->next())) continue;
    measurement_.unfinished += 1;
    measurement_.latency.add(time - schedule_->next());
  }
}

void Generator::close_window() {
  measurement_.end = take_snapshot();
  if (options_.announce) announce("measured");
}

void Generator::end() {
  if (phase_ == Phase::measuring) close_window();
  phase_ = Phase::ended;
}

Snapshot Generator::take_snapshot() const {
  Snapshot snapshot{.time = now(),
                    .waited = poller_.waited(),
                    .cpu = own_cpu_time(),
                    .traffic = commons_.traffic,
                    .watched = {}};
  for (const pid_t pid : options_.watch) snapshot.watched.push_back(cpu_time_of(pid));
  return snapshot;
}

bool Generator::is_in_window(Nanoseconds intended) const {
  return intended >= window_begin_ && intended < window_end_;
}

void Generator::record(const Connection& connection, std::uint64_t operations) {
  const bool counts = schedule_ ? is_in_window(connection.intended()) : phase_ == Phase::measuring;
  if (!counts) return;
  if (schedule_) owed_ -= 1;
  measurement_.operations += operations;
  if (!is_stream(commons_.workload.exchange)) measurement_.latency.add(now() - connection.intended());
}

// The operation under way will never be completed. A time-out must not make the latencies look better
// than they were.
void Generator::forgo(const Connection& connection, Cause cause) {
  if (!schedule_ || !is_in_window(connection.intended())) return;
  owed_ -= 1;
  if (cause != Cause::timeout) return;
  measurement_.unfinished += 1;
  measurement_.latency.add(now() - connection.intended());
}

}  // namespace tlsproxy::load
