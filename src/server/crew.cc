#include "server/crew.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/strings.h"
#include "log/log.h"
#include "server/worker.h"

namespace tlsproxy::server {
namespace {

// How soon a channel that was full is tried again.
constexpr Milliseconds kRetry{10};
// Messages taken from one worker before the next has its turn.
constexpr int kBatch = 64;

std::string end_of(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const char* text = ::strsignal(number);
    return "was killed by signal " + std::to_string(number) + " (" + (text != nullptr ? text : "?") + ")" +
           (WCOREDUMP(status) ? ", core dumped" : "");
  }
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

std::string name_of(const WorkerProcess& worker) {
  return "worker " + std::to_string(worker.place) + " (pid " + std::to_string(worker.pid) + ")";
}

}  // namespace

void Crew::resize(std::size_t places, std::optional<Milliseconds> limit, TimePoint now) {
  while (places_.size() > places) {
    if (auto worker = std::move(places_.back().worker)) {
      worker->channel.send(Quit{limit});
      if (limit) worker->kill_at = now + *limit + kGrace;
      leaving_.push_back(std::move(worker));
    }
    places_.pop_back();
  }
  while (places_.size() < places) {
    places_.emplace_back();
    spawn(places_.size() - 1, now);
  }
}

void Crew::quit(std::optional<Milliseconds> limit, TimePoint now) {
  for (WorkerProcess* worker : everyone()) worker->channel.send(Quit{limit});
  all_leave(now + limit.value_or(Milliseconds::zero()) + kGrace);
}

void Crew::stop(TimePoint now) {
  for (WorkerProcess* worker : everyone()) worker->channel.send(Stop{});
  all_leave(now + kGrace);
}

void Crew::kill_all() {
  for (const WorkerProcess* worker : everyone()) ::kill(worker->pid, SIGKILL);
}

void Crew::all_leave(TimePoint kill_at) {
  for (Place& place : places_) {
    if (place.worker != nullptr) leaving_.push_back(std::move(place.worker));
  }
  places_.clear();
  for (const auto& worker : leaving_) worker->kill_at = kill_at;
}

std::vector<WorkerProcess*> Crew::workers() const {
  std::vector<WorkerProcess*> list;
  for (const Place& place : places_) {
    if (place.worker != nullptr) list.push_back(place.worker.get());
  }
  return list;
}

std::vector<WorkerProcess*> Crew::leaving() const {
  std::vector<WorkerProcess*> list;
  for (const auto& worker : leaving_) list.push_back(worker.get());
  return list;
}

std::vector<WorkerProcess*> Crew::everyone() const {
  std::vector<WorkerProcess*> list = workers();
  for (WorkerProcess* worker : leaving()) list.push_back(worker);
  return list;
}

void Crew::add_to_poll(std::vector<pollfd>& set) const {
  for (const WorkerProcess* worker : everyone()) set.push_back({worker->channel.fd(), POLLIN, 0});
}

std::optional<TimePoint> Crew::next_deadline(TimePoint now) const {
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> at) {
    if (at && (!next || *at < *next)) next = at;
  };
  for (const Place& place : places_) consider(place.fill_at);
  for (const WorkerProcess* worker : everyone()) {
    consider(worker->kill_at);
    // Not POLLOUT: a channel can be writable and still not take descriptors (unix(7), ETOOMANYREFS).
    if (worker->channel.waiting()) consider(now + kRetry);
  }
  return next;
}

void Crew::communicate() {
  // The owner may move workers among the lists meanwhile; only reap() destroys one.
  for (WorkerProcess* worker : everyone()) {
    worker->channel.flush();
    receive(*worker);
  }
}

void Crew::receive(WorkerProcess& worker) {
  for (int i = 0; i < kBatch && worker.channel.fd() >= 0; ++i) {
    Received received = worker.channel.receive();
    if (received.kind == Received::Kind::nothing) return;
    if (received.kind == Received::Kind::closed || received.kind == Received::Kind::damaged) {
      if (received.kind == Received::Kind::damaged) {
        log::error("{} sent {}: it is killed", name_of(worker), received.problem);
        ::kill(worker.pid, SIGKILL);
      }
      // The last thing a worker does that ends. One that stays all the same can be told nothing more.
      worker.channel.close();
      worker.kill_at = std::chrono::steady_clock::now() + kGrace;
      return;
    }
    if (const auto* prepared = std::get_if<Prepared>(&received.message)) {
      owner_.said(worker, *prepared);
    } else if (const auto* applied = std::get_if<Applied>(&received.message)) {
      owner_.said(worker, *applied);
    } else if (auto* refused = std::get_if<Refused>(&received.message)) {
      refused->text = base::escape(refused->text, kLongestText);
      owner_.said(worker, *refused);
    } else if (std::holds_alternative<Pong>(received.message)) {
      worker.unanswered_pings = 0;
    }
  }
}

void Crew::reap(TimePoint now) {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto is_it = [pid](const auto& worker) { return worker != nullptr && worker->pid == pid; };
    if (const auto leaver = std::find_if(leaving_.begin(), leaving_.end(), is_it); leaver != leaving_.end()) {
      log::info("{} {}", name_of(**leaver), end_of(status));
      leaving_.erase(leaver);
      continue;
    }
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (!is_it(places_[i].worker)) continue;
      log::error("{} {}", name_of(*places_[i].worker), end_of(status));
      buried(std::move(places_[i].worker), i, now);
      break;
    }
  }
}

void Crew::buried(std::unique_ptr<WorkerProcess> worker, std::size_t place, TimePoint now) {
  const auto lived = std::chrono::duration_cast<Milliseconds>(now - worker->born);
  const Milliseconds pause = places_[place].backoff.died(lived);
  places_[place].fill_at = now + pause;
  if (pause > RespawnBackoff::kFirst) log::warn("worker {} is started again in {} ms", place, pause.count());
  owner_.died(*worker);
}

void Crew::tick(TimePoint now) {
  for (WorkerProcess* worker : everyone()) {
    if (!worker->kill_at || now < *worker->kill_at) continue;
    log::error("{} does not end: it is killed", name_of(*worker));
    ::kill(worker->pid, SIGKILL);
    worker->kill_at = now + kGrace;
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].fill_at && now >= *places_[i].fill_at) spawn(i, now);
  }
}

bool Crew::ping_all() {
  bool all_answer = true;
  for (WorkerProcess* worker : workers()) {
    if (worker->unanswered_pings > 0) all_answer = false;
    if (worker->unanswered_pings >= kMostUnansweredPings) {
      log::error("{} has not answered {} times: it is killed", name_of(*worker), worker->unanswered_pings);
      ::kill(worker->pid, SIGKILL);
      continue;
    }
    ++worker->unanswered_pings;
    worker->channel.send(Ping{});
  }
  return all_answer;
}

void Crew::spawn(std::size_t place, TimePoint now) {
  places_[place].fill_at.reset();
  auto ends = Channel::make_pair();
  const pid_t master = ::getpid();
  const pid_t pid = ends ? ::fork() : -1;
  if (pid < 0) {
    const std::string cause = ends ? std::strerror(errno) : ends.error().message;
    const Milliseconds pause = places_[place].backoff.died(Milliseconds::zero());
    log::error("cannot start worker {}: {}; tried again in {} ms", place, cause, pause.count());
    places_[place].fill_at = now + pause;
    return;
  }
  if (pid == 0) {
    ends->first.close();
    become_worker(place, master, std::move(ends->second));
  }
  places_[place].worker = std::make_unique<WorkerProcess>(place, std::move(ends->first), now);
  places_[place].worker->pid = pid;
  owner_.born(*places_[place].worker);
}

void Crew::become_worker(std::size_t place, pid_t master, Channel channel) {
  for (WorkerProcess* other : everyone()) other->channel.close();
  const Identity identity = identity_;
  owner_.forget_in_child();
  // Not a return: the stack below is the master's, and nothing of it may be undone here.
  std::exit(run_worker(place, master, std::move(channel), identity));
}

}  // namespace tlsproxy::server
