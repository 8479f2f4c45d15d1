// Master: the process an operator talks to. It holds what must outlive a worker (listening sockets, the
// sealed bundle of the live generation, log files, the pid file), starts workers and replaces them.
//
//   starting --all applied--> serving --QUIT--> quitting --workers gone--> exit 0
//                               |  ^                | QUIT, TERM
//                          HUP  v  | live           v
//                             reloading   --TERM--> stopping --workers gone--> exit 0
//
// A reload is a transaction in two steps. Preparing: the new generation is checked here and built in
// every worker, while the old one serves; any failure ends it without a trace. Then the commit point,
// after which it cannot fail any more: workers switch over, and one that dies comes back with the new
// generation. The start is the same transaction, with nothing to go back to.
//
// One thread, one poll(), no event library: nothing here that a forked child would have to undo.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/candidate.h"
#include "server/crew.h"
#include "server/log_files.h"
#include "server/pid_file.h"
#include "server/socket_set.h"
#include "server/systemd.h"

namespace tlsproxy::server {

class Master final : public Crew::Owner {
 public:
  explicit Master(ConfigPlace place) : place_(std::move(place)) {}
  Master(const Master&) = delete;
  Master& operator=(const Master&) = delete;

  // Starts, serves until told to end; the exit status. Why a start failed is on stderr.
  int run();

 private:
  enum class State : std::uint8_t { starting, serving, quitting, stopping };
  enum class Phase : std::uint8_t { steady, preparing, applying };

  // A generation with all that the master holds for it.
  struct Holding {
    std::uint64_t id = 0;  // 0: none yet
    config::Config config;
    std::size_t workers = 0;
    SharedFd bundle;
    SocketSet sockets;
    LogFiles logs;
    std::shared_ptr<PidFile> pid_file;
  };

  // Start and end.
  bool start();
  void fail_start(const std::string& why);
  void serve();
  void begin_quit();
  void begin_stop();
  void let_go_of_sockets();

  // What happens in a turn.
  void read_signals();
  void handle_signal(int number);
  void tick();
  void reopen_logs();
  [[nodiscard]] int poll_timeout() const;

  // The transaction.
  std::optional<Holding> make_holding(config::Diagnostics& diagnostics, Identity& identity);
  void reload();
  void go_on();
  void advance(WorkerProcess& worker);
  void stage(WorkerProcess& worker, const Holding& holding);
  void commit();
  void tell_to_commit(WorkerProcess& worker);
  void finish();
  void refuse(const std::string& why);
  void abandon(const std::string& why);
  void after_reload();
  [[nodiscard]] std::string status() const;

  // Crew::Owner
  void born(WorkerProcess& worker) override;
  void said(WorkerProcess& worker, const Prepared& message) override;
  void said(WorkerProcess& worker, const Applied& message) override;
  void said(WorkerProcess& worker, const Refused& message) override;
  void died(const WorkerProcess& worker) override;
  void forget_in_child() override;

  ConfigPlace place_;
  State state_ = State::starting;
  Phase phase_ = Phase::steady;
  Holding live_;
  std::optional<Holding> next_;  // present while preparing
  std::uint64_t last_id_ = 0;    // given to workers, whether or not it came to live
  std::optional<TimePoint> phase_deadline_;
  std::optional<TimePoint> next_ping_;
  std::optional<Milliseconds> ping_interval_;
  bool reload_again_ = false;
  bool reopen_again_ = false;
  int exit_status_ = 0;

  os::Fd signals_;
  systemd::InheritedSockets inherited_;
  std::optional<Crew> crew_;
};

}  // namespace tlsproxy::server
