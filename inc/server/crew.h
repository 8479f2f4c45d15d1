// Crew: the worker processes as the master sees them.
//
//   place 0: worker, pid 4711, channel      a dead worker's place is filled again at once, or after a
//   place 1: empty until its back-off ends  pause when it died young
//   leaving: workers that were told to end; they are not replaced, and killed when they do not go
//
// The crew forks, reaps, passes messages and keeps the deadlines of single workers. What is said to a
// worker, and when all of them have said the same, is the owner's business.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/channel.h"
#include "server/privileges.h"
#include "server/respawn.h"

namespace tlsproxy::server {

using TimePoint = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

// One worker process. The owner of the crew keeps its notes here too.
struct WorkerProcess {
  WorkerProcess(std::size_t place_number, Channel end, TimePoint now)
      : place(place_number), channel(std::move(end)), born(now) {}

  std::size_t place;
  pid_t pid = 0;
  Channel channel;
  TimePoint born;
  std::optional<TimePoint> kill_at;  // when it must have gone
  int unanswered_pings = 0;

  // Generations, by their ids: sent to it, built by it, serving in it.
  std::uint64_t begun = 0;
  std::uint64_t prepared = 0;
  std::uint64_t applied = 0;
  std::set<std::uint64_t> sockets;         // it serves these
  std::set<std::uint64_t> staged_sockets;  // it will, once the begun generation is committed
};

class Crew {
 public:
  class Owner {
   public:
    // A worker has just been forked and waits to be told what to serve.
    virtual void born(WorkerProcess& worker) = 0;
    virtual void said(WorkerProcess& worker, const Prepared& message) = 0;
    virtual void said(WorkerProcess& worker, const Applied& message) = 0;
    virtual void said(WorkerProcess& worker, const Refused& message) = 0;
    // A worker of the crew, not a leaving one, has died; it is off its place.
    virtual void died(const WorkerProcess& worker) = 0;
    // In the child, after fork: let go of everything that is the master's.
    virtual void forget_in_child() = 0;

   protected:
    ~Owner() = default;
  };

  // How long a worker may take to go after it was told to.
  static constexpr Milliseconds kGrace{5000};
  static constexpr int kMostUnansweredPings = 3;

  // `identity` is what every worker becomes.
  Crew(Owner& owner, Identity identity) : owner_(owner), identity_(std::move(identity)) {}
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  [[nodiscard]] const Identity& identity() const { return identity_; }

  // Makes the number of places `places`. New ones are filled now; workers of places that go are told to
  // quit, and have `limit` for their sessions.
  void resize(std::size_t places, std::optional<Milliseconds> limit, TimePoint now);

  // Tells every worker to end, after its sessions or at once, and replaces none from now on.
  void quit(std::optional<Milliseconds> limit, TimePoint now);
  void stop(TimePoint now);
  void kill_all();

  // The workers on their places, those that leave, and both.
  [[nodiscard]] std::vector<WorkerProcess*> workers() const;
  [[nodiscard]] std::vector<WorkerProcess*> leaving() const;
  [[nodiscard]] std::vector<WorkerProcess*> everyone() const;
  [[nodiscard]] bool gone() const { return everyone().empty(); }

  // For the master's one poll(): what to wait for, and until when at most.
  void add_to_poll(std::vector<pollfd>& set) const;
  [[nodiscard]] std::optional<TimePoint> next_deadline(TimePoint now) const;

  // Moves messages both ways and calls the owner for each that came.
  void communicate();
  // Collects the dead, whoever they were.
  void reap(TimePoint now);
  // Fills places whose pause is over, kills who overstays.
  void tick(TimePoint now);

  // Asks every worker for a sign of life; who owes kMostUnansweredPings is killed. Whether nobody owed one.
  bool ping_all();

 private:
  struct Place {
    std::unique_ptr<WorkerProcess> worker;
    RespawnBackoff backoff;
    std::optional<TimePoint> fill_at;
  };

  void spawn(std::size_t place, TimePoint now);
  [[noreturn]] void become_worker(std::size_t place, pid_t master, Channel channel);
  void buried(std::unique_ptr<WorkerProcess> worker, std::size_t place, TimePoint now);
  void receive(WorkerProcess& worker);
  void all_leave(TimePoint kill_at);

  Owner& owner_;
  Identity identity_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<WorkerProcess>> leaving_;
};

}  // namespace tlsproxy::server
