// Generator: opens the connections, begins operations at the pace the mode asks for, and measures.
//
//   opening --> (held -->) warming --> measuring --> (draining -->) ended
//
// opening: persistent connections only. held: idle mode waits for the go-ahead. draining: operations that
// were meant to begin within the window are waited for; scheduled pace only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "connection.h"
#include "failure.h"
#include "fixed_queue.h"
#include "measurement.h"
#include "options.h"
#include "poller.h"
#include "schedule.h"
#include "tls_client.h"

namespace tlsproxy::load {

class Generator final : private ConnectionOwner {
 public:
  // Errors: an unknown suite or group, no epoll.
  static base::Result<std::unique_ptr<Generator>> make(const Options& options);

  // Runs to the end, or until `stop` is readable. Errors: it makes no sense to go on.
  base::Status run(int stop);

  [[nodiscard]] bool was_interrupted() const { return interrupted_; }
  [[nodiscard]] const Measurement& measurement() const { return measurement_; }
  [[nodiscard]] const CauseCounts& failures() const { return failures_; }
  [[nodiscard]] const Traffic& traffic() const { return commons_.traffic; }
  [[nodiscard]] const std::optional<TlsFacts>& tls_facts() const { return tls_facts_; }

 private:
  enum class Phase { opening, held, warming, measuring, draining, ended };
  struct Slot {
    bool is_up = false;      // a persistent connection that is open
    bool under_way = false;  // an operation was started and has not ended
    bool is_queued = false;  // in ready_
  };
  struct Paused {
    Nanoseconds until;
    std::uint32_t slot;
  };

  Generator(const Options& options, std::optional<TlsClient> tls, Poller poller);

  void opened(Connection& connection) override;
  void completed(Connection& connection, std::uint64_t operations) override;
  void finished(Connection& connection) override;
  void failed(Connection& connection, Cause cause) override;

  void turn();
  void serve_events();
  void serve(std::uint32_t slot, std::uint32_t events);
  void serve_again(const Connection& connection);
  [[nodiscard]] bool can_open() const;
  void open_some();
  void start_due(Nanoseconds time);
  void start(std::uint32_t slot, Nanoseconds intended);
  void end_pauses(Nanoseconds time);
  void pause(std::uint32_t slot, Nanoseconds length);
  void fail_stuck(Nanoseconds time);
  [[nodiscard]] Nanoseconds deadline() const;

  void settle(Connection& connection, bool open);
  void hold();
  void begin_load();
  void advance_phase(Nanoseconds time);
  void give_up_unfinished(Nanoseconds time);
  void close_window();
  void end();
  Snapshot take_snapshot() const;

  [[nodiscard]] bool is_in_window(Nanoseconds intended) const;
  void record(const Connection& connection, std::uint64_t operations);
  void forgo(const Connection& connection, Cause cause);

  Options options_;
  std::optional<TlsClient> tls_;
  Poller poller_;
  Commons commons_;
  std::optional<Schedule> schedule_;
  std::deque<Connection> connections_;
  std::vector<Slot> slots_;          // of the connections
  FixedQueue<std::uint32_t> idle_;   // can start an operation
  FixedQueue<Paused> paused_;        // think, or recover from a failure
  FixedQueue<std::uint32_t> ready_;  // are to be served without an event

  Phase phase_ = Phase::opening;
  std::size_t asked_to_open_ = 0;
  std::size_t settled_ = 0;  // open, or failed to
  std::size_t open_ = 0;     // persistent connections that are up
  std::uint64_t failures_in_a_row_ = 0;
  std::uint64_t owed_ = 0;  // operations of the window that are under way; scheduled pace
  Nanoseconds window_begin_ = 0;
  Nanoseconds window_end_ = 0;
  Nanoseconds next_check_ = 0;
  bool interrupted_ = false;
  std::string hopeless_;  // why it makes no sense to go on
  std::optional<TlsFacts> tls_facts_;
  CauseCounts failures_{};
  Measurement measurement_;
};

}  // namespace tlsproxy::load
