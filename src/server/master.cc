#include "server/master.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "log/log.h"
#include "server/bundle.h"

namespace tlsproxy::server {
namespace {

// How long workers may take to build a generation (name resolution included) or to switch over to it.
constexpr Milliseconds kPhaseLimit{60000};
// Pings per watchdog limit: a stuck worker is found, killed and replaced before systemd gives up on us.
constexpr int kPingsPerLimit = 8;

TimePoint now() {
  return std::chrono::steady_clock::now();
}

sigset_t handled_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
    ::sigaddset(&set, number);
  }
  return set;
}

// A proxy needs two descriptors per session. The soft limit is small for the sake of programs that use
// select(2); the hard one is what the administrator allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::size_t count_workers(const config::Config& config) {
  if (config.workers > 0) return config.workers;
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
    return static_cast<std::size_t>(std::max(1, CPU_COUNT(&cpus)));
  }
  return static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

std::string counted(std::size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

int Master::run() {
  // Blocked before anything else: a signal during the start is then handled after it, not lost.
  const sigset_t set = handled_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  if (!start()) return 1;
  serve();
  return exit_status_;
}

// --- start and end -------------------------------------------------------------------------------

bool Master::start() {
  raise_descriptor_limit();
  const sigset_t set = handled_signals();
  signals_.reset(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_) {
    std::fprintf(stderr, "tlsproxy: signalfd: %m\n");
    return false;
  }
  auto inherited = systemd::take_sockets();
  if (!inherited) {
    std::fprintf(stderr, "tlsproxy: %s\n", inherited.error().message.c_str());
    return false;
  }
  inherited_ = std::move(*inherited);
  if (const auto limit = systemd::watchdog_limit()) {
    ping_interval_ = std::max(Milliseconds(1), *limit / kPingsPerLimit);
    next_ping_ = now();
  }

  config::Diagnostics diagnostics(place_.file);
  Identity identity;
  next_ = make_holding(diagnostics, identity);
  for (const std::string& line : diagnostics.lines()) std::fprintf(stderr, "%s\n", line.c_str());
  if (!next_) return false;
  last_id_ = next_->id;
  crew_.emplace(*this, std::move(identity));
  phase_ = Phase::preparing;
  phase_deadline_ = now() + kPhaseLimit;
  crew_->resize(next_->workers, {}, now());
  return true;
}

void Master::fail_start(const std::string& why) {
  log::error("not started: {}", why);
  exit_status_ = 1;
  begin_stop();
}

void Master::serve() {
  std::vector<pollfd> set;
  while (!((state_ == State::quitting || state_ == State::stopping) && crew_->gone())) {
    set.assign(1, {signals_.get(), POLLIN, 0});
    crew_->add_to_poll(set);
    ::poll(set.data(), set.size(), poll_timeout());
    read_signals();
    crew_->communicate();
    crew_->reap(now());
    crew_->tick(now());
    tick();
  }
  log::info("stopped");
}

void Master::begin_quit() {
  log::info("quit: waiting up to {} ms for sessions to end", live_.config.drain.count());
  state_ = State::quitting;
  systemd::stopping();
  crew_->quit(live_.config.drain, now());
  let_go_of_sockets();
}

void Master::begin_stop() {
  if (state_ != State::stopping) log::info("stop: ending all sessions");
  state_ = State::stopping;
  systemd::stopping();
  crew_->stop(now());
  let_go_of_sockets();
}

// Ours are closed at once: the last word on each socket is then the worker's, which empties its accept
// queue before it closes.
void Master::let_go_of_sockets() {
  if (next_) next_->sockets.remove_files_not_in(live_.sockets);
  next_.reset();
  live_.sockets.remove_files_not_in(SocketSet());
  live_.sockets = SocketSet();
  inherited_.clear();
  phase_ = Phase::steady;
  phase_deadline_.reset();
}

// --- a turn --------------------------------------------------------------------------------------

int Master::poll_timeout() const {
  const TimePoint at = now();
  std::optional<TimePoint> next = crew_->next_deadline(at);
  for (const auto& other : {phase_deadline_, next_ping_}) {
    if (other && (!next || *other < *next)) next = other;
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<Milliseconds>(*next - at).count();
  return static_cast<int>(std::clamp<Milliseconds::rep>(left, 0, 3600 * 1000));
}

void Master::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    handle_signal(static_cast<int>(info.ssi_signo));
  }
}

void Master::handle_signal(int number) {
  switch (number) {
    case SIGHUP:
      reload();
      break;
    case SIGUSR1:
      reopen_logs();
      break;
    case SIGUSR2:
      log::warn("signal USR2 is ignored: the program cannot be exchanged while it runs");
      break;
    case SIGQUIT:
    case SIGTERM:
    case SIGINT:
      // Asked again, each answer is harder than the one before.
      if (state_ == State::stopping) {
        crew_->kill_all();
      } else if (number == SIGQUIT && state_ == State::serving) {
        begin_quit();
      } else {
        begin_stop();
      }
      break;
    default:  // SIGCHLD: every turn reaps
      break;
  }
}

void Master::tick() {
  if (next_ping_ && now() >= *next_ping_) {
    if (crew_->ping_all()) systemd::watchdog();
    next_ping_ = now() + *ping_interval_;
  }
  if (!phase_deadline_ || now() < *phase_deadline_) return;
  phase_deadline_.reset();
  if (phase_ == Phase::applying) {
    for (const WorkerProcess* worker : crew_->workers()) {
      if (worker->applied >= live_.id) continue;
      log::error("worker {} does not switch to generation {}: it is killed", worker->place, live_.id);
      ::kill(worker->pid, SIGKILL);
    }
    phase_deadline_ = now() + kPhaseLimit;
    return;
  }
  abandon("the workers were not ready within " + std::to_string(kPhaseLimit.count() / 1000) + " s");
}

void Master::reopen_logs() {
  // While a reload runs, targets of two generations are under way: which of them are new must be clear.
  if (phase_ != Phase::steady) {
    reopen_again_ = true;
    return;
  }
  config::Diagnostics diagnostics(place_.file);
  auto logs = LogFiles::open(live_.config, place_, diagnostics);
  if (!logs) {
    for (const std::string& line : diagnostics.lines()) log::error("{}", line);
    log::error("log files are not opened again: the old ones stay in use");
    return;
  }
  live_.logs = std::move(*logs);
  use_log_files(live_.logs);
  for (WorkerProcess* worker : crew_->everyone()) {
    worker->channel.send(LogTargets{live_.logs.error, live_.logs.access});
  }
  log::info("log files opened again");
}

// --- the transaction -----------------------------------------------------------------------------

std::optional<Master::Holding> Master::make_holding(config::Diagnostics& diagnostics, Identity& identity) {
  Holding holding;
  holding.id = last_id_ + 1;
  auto candidate = check_configuration(place_, holding.id, diagnostics);
  if (!candidate) return std::nullopt;
  holding.config = std::move(candidate->config);
  holding.workers = count_workers(holding.config);
  identity = std::move(candidate->identity);

  auto bundle = seal_bundle(place_.file, candidate->text, candidate->files->contents());
  if (!bundle) {
    diagnostics.error({}, bundle.error().message);
    return std::nullopt;
  }
  holding.bundle = share(std::move(*bundle));
  auto logs = LogFiles::open(holding.config, place_, diagnostics);
  if (!logs) return std::nullopt;
  holding.logs = std::move(*logs);
  auto sockets = SocketSet::open(holding.config, holding.workers, live_.sockets, inherited_, diagnostics);
  if (!sockets) return std::nullopt;
  holding.sockets = std::move(*sockets);

  if (holding.config.pid_file.value.empty()) return holding;
  const std::string path = place_.resolve(holding.config.pid_file.value);
  if (live_.pid_file != nullptr && live_.pid_file->path() == path) {
    holding.pid_file = live_.pid_file;
    return holding;
  }
  auto pid_file = PidFile::create(path);
  if (!pid_file) {
    diagnostics.error(holding.config.pid_file.mark, pid_file.error().message);
    holding.sockets.remove_files_not_in(live_.sockets);
    return std::nullopt;
  }
  holding.pid_file = std::make_shared<PidFile>(std::move(*pid_file));
  return holding;
}

void Master::reload() {
  if (state_ == State::quitting || state_ == State::stopping) {
    log::info("no reload: the proxy is ending");
    return;
  }
  if (phase_ != Phase::steady) {
    reload_again_ = true;
    return;
  }
  log::info("reload: reading {}", place_.file);
  systemd::reloading();
  config::Diagnostics diagnostics(place_.file);
  Identity identity;
  auto holding = make_holding(diagnostics, identity);
  for (const std::string& line : diagnostics.lines()) {
    if (diagnostics.failed()) {
      log::error("{}", line);
    } else {
      log::warn("{}", line);
    }
  }
  if (!holding) return refuse(counted(diagnostics.errors(), "error") + " in " + place_.file);
  if (!(identity == crew_->identity())) {
    log::warn("the user or group of the workers changes with a restart only: they keep the one they have");
  }
  next_ = std::move(holding);
  last_id_ = next_->id;
  phase_ = Phase::preparing;
  phase_deadline_ = now() + kPhaseLimit;
  crew_->resize(std::max(live_.workers, next_->workers), {}, now());
  go_on();
}

void Master::refuse(const std::string& why) {
  const std::string text = "reload refused: " + why + "; generation " + std::to_string(live_.id) + " stays";
  log::error("{}", text);
  systemd::ready(text);
  after_reload();
}

void Master::abandon(const std::string& why) {
  if (state_ == State::starting) return fail_start(why);
  for (WorkerProcess* worker : crew_->workers()) {
    if (worker->begun == next_->id) worker->channel.send(Abandon{next_->id});
  }
  next_->sockets.remove_files_not_in(live_.sockets);
  next_.reset();
  phase_ = Phase::steady;
  phase_deadline_.reset();
  crew_->resize(live_.workers, Milliseconds::zero(), now());
  refuse(why);
}

// Tells each worker what it lacks, and takes the transaction on as far as their answers allow. A worker
// that is dead just now is not waited for: its successor starts with whatever is live then.
void Master::go_on() {
  if (state_ == State::quitting || state_ == State::stopping) return;
  const auto workers = crew_->workers();
  for (WorkerProcess* worker : workers) advance(*worker);
  if (workers.empty()) return;
  if (phase_ == Phase::preparing &&
      std::all_of(workers.begin(), workers.end(),
                  [this](const WorkerProcess* worker) { return worker->prepared == next_->id; })) {
    commit();
  } else if (phase_ == Phase::applying &&
             std::all_of(workers.begin(), workers.end(),
                         [this](const WorkerProcess* worker) { return worker->applied == live_.id; })) {
    finish();
  }
}

void Master::advance(WorkerProcess& worker) {
  if (worker.applied < live_.id) {
    if (worker.begun < live_.id) stage(worker, live_);
  } else if (next_ && worker.begun < next_->id) {
    stage(worker, *next_);
  }
}

void Master::stage(WorkerProcess& worker, const Holding& holding) {
  worker.begun = holding.id;
  worker.staged_sockets.clear();
  worker.channel.send(BeginGeneration{holding.id, holding.bundle, holding.logs.error, holding.logs.access});
  for (const Place& place : holding.sockets.places()) {
    for (std::size_t i = 0; i < place.sockets.size(); ++i) {
      if (!place.serves(worker.place, holding.workers, i)) continue;
      const ListeningSocket& socket = place.sockets[i];
      const bool there = worker.sockets.contains(socket.id);
      worker.channel.send(ListenSocket{socket.id, place.listener, place.bind, there ? nullptr : socket.fd});
      worker.staged_sockets.insert(socket.id);
    }
  }
  worker.channel.send(Prepare{holding.id});
}

// The commit point: from here on the new generation is the one that a respawned worker gets.
void Master::commit() {
  const Holding old = std::exchange(live_, std::move(*next_));
  next_.reset();
  phase_ = Phase::applying;
  phase_deadline_ = now() + kPhaseLimit;
  live_.sockets.adopt();
  use_log_files(live_.logs);
  use_log_level(live_.config.log.level);
  for (const Place& place : old.sockets.places()) {
    if (!live_.sockets.has(place.key)) {
      log::info("no longer listening on {} (listener {})", place.address.to_string(), place.listener_name);
    }
  }
  for (const Place& place : live_.sockets.places()) {
    if (!old.sockets.has(place.key)) {
      log::info("listening on {} (listener {})", place.address.to_string(), place.listener_name);
    }
  }
  old.sockets.remove_files_not_in(live_.sockets);
  crew_->resize(live_.workers, live_.config.drain_after_reload, now());
  for (WorkerProcess* worker : crew_->workers()) tell_to_commit(*worker);
  for (WorkerProcess* worker : crew_->leaving()) {
    worker->channel.send(LogTargets{live_.logs.error, live_.logs.access});
  }
}

void Master::tell_to_commit(WorkerProcess& worker) {
  worker.sockets = std::exchange(worker.staged_sockets, {});
  worker.channel.send(Commit{live_.id});
}

void Master::finish() {
  phase_ = Phase::steady;
  phase_deadline_.reset();
  if (state_ == State::starting) {
    state_ = State::serving;
    log::info("ready: {}, master pid {}, version {}", status(), ::getpid(), TLSPROXY_VERSION);
  } else {
    log::info("generation {} is live", live_.id);
  }
  systemd::ready(status());
  after_reload();
}

void Master::after_reload() {
  if (std::exchange(reopen_again_, false)) reopen_logs();
  if (std::exchange(reload_again_, false)) reload();
}

std::string Master::status() const {
  return "generation " + std::to_string(live_.id) + ", " + counted(live_.workers, "worker");
}

// --- news of the crew ----------------------------------------------------------------------------

void Master::born(WorkerProcess& worker) {
  log::debug("worker {} started as pid {}", worker.place, worker.pid);
  advance(worker);
}

void Master::said(WorkerProcess& worker, const Prepared& message) {
  if (message.id != worker.begun) return;  // of a generation that was abandoned meanwhile
  worker.prepared = message.id;
  if (message.id == live_.id) tell_to_commit(worker);
  go_on();
}

void Master::said(WorkerProcess& worker, const Applied& message) {
  worker.applied = message.id;
  if (message.id == live_.id && phase_ == Phase::steady) {
    log::info("worker {} (pid {}) serves generation {}", worker.place, worker.pid, live_.id);
  }
  go_on();
}

void Master::said(WorkerProcess& worker, const Refused& message) {
  const std::string text = "worker " + std::to_string(worker.place) + ": " + message.text;
  if (next_ && message.id == next_->id) {
    abandon(text);
  } else if (message.id == live_.id) {
    // It cannot serve what the others serve. Its successor may: the pause before it grows.
    log::error("{}", text);
    ::kill(worker.pid, SIGKILL);
  }
}

void Master::died(const WorkerProcess& worker) {
  if (state_ == State::starting) {
    fail_start("worker " + std::to_string(worker.place) + " ended before it was ready");
  } else {
    go_on();
  }
}

void Master::forget_in_child() {
  signals_.reset();
  inherited_.clear();
  for (Holding* holding : {&live_, next_ ? &*next_ : nullptr}) {
    if (holding == nullptr) continue;
    if (holding->pid_file != nullptr) holding->pid_file->forget();
    holding->bundle.reset();
    holding->logs = LogFiles();
    holding->sockets = SocketSet();
  }
}

}  // namespace tlsproxy::server
