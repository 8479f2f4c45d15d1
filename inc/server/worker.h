// Worker: one process that serves. It owns its loop, its memory pool, its sessions and its acceptors, and
// does what the master says over the channel.
//
// A generation comes in pieces and is staged; Prepare builds it beside the one that serves; Commit switches
// over: sockets that stay are pointed at the new generation, new ones are accepted from, those that are
// gone are emptied and closed. Sessions keep the generation they began with.
//
// A worker without its master ends at once: nobody could replace it, or tell it anything.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffer/block_pool.h"
#include "loop/io_event.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "relay/generation.h"
#include "relay/sessions.h"
#include "server/acceptor.h"
#include "server/channel.h"
#include "server/log_files.h"
#include "server/overrides.h"
#include "server/privileges.h"

namespace tlsproxy::server {

// The life of a worker in the process that fork made: signals, privileges, then a Worker. The exit status.
// `master` is the process that forked.
int run_worker(std::size_t number, pid_t master, Channel channel, const Identity& identity);

class Worker final : public Acceptor::Owner {
 public:
  explicit Worker(Channel channel);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Serves until told to end and done.
  void run();

 private:
  enum class State : std::uint8_t { serving, quitting, stopping };

  // A generation on its way.
  struct Staged {
    std::uint64_t id = 0;
    SharedFd bundle;
    LogFiles logs;
    std::vector<ListenSocket> sockets;
    std::string problem;  // why it cannot be prepared; empty: nothing yet
    std::shared_ptr<relay::Generation> generation;
  };

  // What a worker that serves has. The pool's budget is known with the first generation only.
  struct Service {
    Service(loop::Loop& loop, std::size_t budget, const Overrides& forced)
        : pool(budget, forced.blocks), sessions(loop, pool, forced.splice) {}
    buffer::BlockPool pool;
    relay::Sessions sessions;
    std::map<std::uint64_t, std::unique_ptr<Acceptor>> acceptors;  // by socket id
  };

  // Until when sessions of generations older than `id` may last.
  struct OldSessions {
    std::uint64_t id;
    loop::TimePoint until;
  };

  void on_channel(loop::IoNews);
  void say(Message message);
  void say_waiting();

  void handle(BeginGeneration& message);
  void handle(ListenSocket& message);
  void handle(const Prepare& message);
  void handle(const Commit& message);
  void handle(const Abandon& message);
  void handle(const LogTargets& message);
  void handle(const Quit& message);
  void handle(const Stop& message);
  void handle(const Ping& message);
  // What only a worker says: not for us.
  void handle(const Prepared&) {}
  void handle(const Applied&) {}
  void handle(const Refused&) {}
  void handle(const Pong&) {}

  [[nodiscard]] std::string build_staged();
  void settled(std::uint64_t id);
  void switch_over();
  void limit_old_sessions(const relay::Generation& live);
  void stop();
  [[nodiscard]] bool finished() const;
  [[nodiscard]] std::size_t session_count() const;

  void on_trim();
  void return_heap();
  void on_old_sessions();
  void on_pause_over();
  void on_drain_limit();

  // Acceptor::Owner
  void accepted(Acceptor& acceptor, os::Fd client, const os::SocketAddress& peer) override;
  void cannot_accept(int error) override;

  loop::Loop loop_;
  Channel channel_;
  loop::IoEvent channel_event_;
  loop::Timer channel_timer_;  // while the channel is full
  std::string damage_;         // of the last message that could not be used

  State state_ = State::serving;
  std::optional<Staged> staged_;
  std::optional<Service> service_;
  std::shared_ptr<relay::Generation> live_;
  std::vector<OldSessions> old_sessions_;

  loop::Timer trim_timer_;
  loop::Timer old_sessions_timer_;
  loop::Timer pause_timer_;
  loop::Timer drain_timer_;  // while quitting

  std::size_t most_sessions_ = 0;      // at a time, since the heap was last returned
  std::uint64_t accept_failures_ = 0;  // since the last line about them
  std::optional<loop::TimePoint> accept_failure_told_;
};

}  // namespace tlsproxy::server
