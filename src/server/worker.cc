#include "server/worker.h"

#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "config/yaml_loader.h"
#include "log/log.h"
#include "server/bundle.h"
#include "tls/memory.h"

namespace tlsproxy::server {
namespace {

constexpr loop::Duration kChannelRetry{10};
constexpr loop::Duration kTrimInterval{1000};
constexpr loop::Duration kAcceptPause{500};
constexpr loop::Duration kAcceptLogInterval{1000};
// Of an accept queue that is emptied before its socket is closed. Queues are shorter unless an
// administrator wanted otherwise; a flood of new clients must not keep the worker from ending.
constexpr int kMostQueued = 65536;
// Sessions whose memory is worth a walk of the whole heap (malloc_trim) when they have ended.
constexpr std::size_t kCrowd = 64;
// Messages taken from the master in one turn of the loop.
constexpr int kBatch = 64;

void set_up_signals() {
  // The master's are not ours: a terminal sends them to the whole group, and only the master knows what
  // to do then. TERM keeps its default, so that whoever means this one process can end it.
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(number, SIG_IGN);
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

int run_worker(std::size_t number, pid_t master, Channel channel, const Identity& identity) {
  log::set_process_name("worker " + std::to_string(number));
  set_up_signals();
  if (auto status = drop_privileges(identity); !status) {
    log::error("{}", status.error().message);
    return 1;
  }
#ifdef __SANITIZE_ADDRESS__
  // The leak checker traces its own process, which the kernel forbids after a change of user.
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
#endif
  // After the change of user, which resets it (prctl(2)).
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != master) return 1;
  Worker(std::move(channel)).run();
  return 0;
}

Worker::Worker(Channel channel) : channel_(std::move(channel)) {
  channel_timer_.bind<&Worker::say_waiting>(loop_, *this);
  trim_timer_.bind<&Worker::on_trim>(loop_, *this);
  old_sessions_timer_.bind<&Worker::on_old_sessions>(loop_, *this);
  pause_timer_.bind<&Worker::on_pause_over>(loop_, *this);
  drain_timer_.bind<&Worker::on_drain_limit>(loop_, *this);
  channel_event_.start<&Worker::on_channel>(loop_, channel_.fd(), loop::IoEvent::Trigger::level_read, *this);
}

void Worker::run() {
  while (!finished()) loop_.turn();
}

bool Worker::finished() const {
  return state_ != State::serving && session_count() == 0;
}

std::size_t Worker::session_count() const {
  return service_ ? service_->sessions.size() : 0;
}

// --- the channel ---------------------------------------------------------------------------------

void Worker::on_channel(loop::IoNews) {
  for (int i = 0; i < kBatch; ++i) {
    Received received = channel_.receive();
    switch (received.kind) {
      case Received::Kind::nothing:
        return;
      case Received::Kind::message:
        std::visit([this](auto& message) { handle(message); }, received.message);
        break;
      case Received::Kind::damaged:
        log::error("the master's message cannot be used: {}", received.problem);
        damage_ = std::move(received.problem);
        if (staged_) staged_->problem = damage_;
        break;
      case Received::Kind::closed:
        log::warn("the master is gone");
        channel_event_.stop();
        stop();
        return;
    }
  }
}

void Worker::say(Message message) {
  channel_.send(std::move(message));
  if (channel_.waiting()) channel_timer_.arm(kChannelRetry);
}

void Worker::say_waiting() {
  channel_.flush();
  if (channel_.waiting()) channel_timer_.arm(kChannelRetry);
}

void Worker::handle(BeginGeneration& message) {
  staged_.emplace();
  staged_->id = message.id;
  staged_->bundle = std::move(message.bundle);
  staged_->logs = {std::move(message.error_log), std::move(message.access_log)};
}

void Worker::handle(ListenSocket& message) {
  if (staged_) staged_->sockets.push_back(std::move(message));
}

void Worker::handle(const Prepare& message) {
  if (!staged_ || staged_->id != message.id) {
    say(Refused{message.id, "the configuration did not arrive: " + damage_});
    return;
  }
  if (staged_->problem.empty()) staged_->problem = build_staged();
  if (!staged_->problem.empty()) {
    say(Refused{message.id, staged_->problem});
    staged_.reset();
    return;
  }
  staged_->generation->start(loop_, [this, id = message.id] { settled(id); });
}

// Makes the staged generation from its bundle; why not, or nothing.
std::string Worker::build_staged() {
  auto bundle = open_bundle(staged_->bundle->get());
  staged_->bundle.reset();
  if (!bundle) return bundle.error().message;
  config::Diagnostics diagnostics(bundle->file_name);
  config::Config config = config::load_yaml(bundle->text, diagnostics);
  config::RecordedFiles files(std::move(bundle->files));
  if (!diagnostics.failed()) {
    staged_->generation = relay::Generation::make(staged_->id, std::move(config), files, diagnostics);
  }
  if (staged_->generation == nullptr) {
    const auto lines = diagnostics.lines();
    return lines.empty() ? "the configuration cannot be used" : lines.front();
  }
  for (const ListenSocket& socket : staged_->sockets) {
    const auto& listeners = staged_->generation->config().listeners;
    if (socket.listener >= listeners.size() || socket.bind >= listeners[socket.listener].bind.size()) {
      return "a socket belongs to no listener";
    }
    const bool there = service_ && service_->acceptors.contains(socket.id);
    if (socket.fd == nullptr && !there) return "a socket that should be here is not";
  }
  return {};
}

void Worker::settled(std::uint64_t id) {
  if (staged_ && staged_->id == id) say(Prepared{id});
}

void Worker::handle(const Commit& message) {
  if (!staged_ || staged_->id != message.id || staged_->generation == nullptr) return;
  if (state_ == State::serving) switch_over();
  staged_.reset();
  say(Applied{message.id});
}

void Worker::handle(const Abandon& message) {
  if (staged_ && staged_->id == message.id) staged_.reset();
}

void Worker::handle(const LogTargets& message) {
  const LogFiles logs{message.error_log, message.access_log};
  use_log_files(logs);
  // The master sends these between reloads only: what is staged then is the live generation, for a
  // worker that has just been born.
  if (staged_) staged_->logs = logs;
}

void Worker::handle(const Ping&) {
  say(Pong{});
}

// --- generations ---------------------------------------------------------------------------------

void Worker::switch_over() {
  const std::shared_ptr<relay::Generation> generation = std::move(staged_->generation);
  const config::Config& config = generation->config();
  use_log_files(staged_->logs);
  use_log_level(config.log.level);
  if (!service_) {
    // The master has refused to start with any that cannot be used.
    service_.emplace(loop_, config.buffer_memory, Overrides::from_environment().value_or(Overrides{}));
  } else {
    service_->pool.set_budget(config.buffer_memory);
  }

  auto before = std::exchange(service_->acceptors, {});
  for (ListenSocket& socket : staged_->sockets) {
    auto& acceptor = service_->acceptors[socket.id];
    if (const auto kept = before.find(socket.id); kept != before.end()) {
      acceptor = std::move(kept->second);
      before.erase(kept);
    } else {
      acceptor = std::make_unique<Acceptor>(loop_, std::move(socket.fd), *this);
      if (!pause_timer_.armed()) acceptor->resume();
    }
    acceptor->serve(generation, generation->services()[socket.listener].get());
  }
  for (const auto& [id, gone] : before) gone->finish(kMostQueued);
  live_ = generation;
  limit_old_sessions(*generation);
}

void Worker::limit_old_sessions(const relay::Generation& live) {
  const auto limit = live.config().drain_after_reload;
  if (!limit || session_count() == service_->sessions.size_of_generation(live.id())) return;
  old_sessions_.push_back({live.id(), loop_.now() + *limit});
  on_old_sessions();
}

void Worker::on_old_sessions() {
  const loop::TimePoint now = loop_.now();
  std::optional<loop::TimePoint> next;
  std::erase_if(old_sessions_, [&](const OldSessions& old) {
    if (old.until <= now) {
      service_->sessions.close_older_than(old.id, record::CloseReason::drain);
      return true;
    }
    if (!next || old.until < *next) next = old.until;
    return false;
  });
  if (next) old_sessions_timer_.arm(std::chrono::ceil<loop::Duration>(*next - now));
}

// --- the end -------------------------------------------------------------------------------------

void Worker::handle(const Quit& message) {
  if (state_ == State::stopping) return;
  if (state_ == State::serving) {
    state_ = State::quitting;
    staged_.reset();
    if (service_) {
      for (const auto& [id, acceptor] : service_->acceptors) acceptor->finish(kMostQueued);
      service_->acceptors.clear();
    }
    live_.reset();
    log::debug("quit: {} sessions are left", session_count());
  }
  if (message.limit) drain_timer_.arm(*message.limit);
}

void Worker::handle(const Stop&) {
  stop();
}

void Worker::stop() {
  if (state_ == State::stopping) return;
  state_ = State::stopping;
  staged_.reset();
  drain_timer_.cancel();
  if (!service_) return;
  service_->acceptors.clear();
  service_->sessions.close_all(record::CloseReason::stopped);
}

void Worker::on_drain_limit() {
  // Each session ends in order now, which may take until its linger timeout.
  log::info("quit: the drain limit ends {} sessions", session_count());
  if (service_) service_->sessions.close_all(record::CloseReason::drain);
}

// --- clients -------------------------------------------------------------------------------------

void Worker::accepted(Acceptor& acceptor, os::Fd client, const os::SocketAddress& peer) {
  if (!trim_timer_.armed()) trim_timer_.arm(kTrimInterval);
  service_->sessions.open(std::move(client), peer, acceptor.generation(), *acceptor.service());
  most_sessions_ = std::max(most_sessions_, session_count());
}

// Gives the pages of a crowd that has left back to the system: malloc keeps them otherwise.
void Worker::return_heap() {
  const std::size_t gone = most_sessions_ - session_count();
  if (gone < kCrowd || gone < most_sessions_ / 2) return;
  ::malloc_trim(0);
  most_sessions_ = session_count();
}

// All acceptors pause: what one lacks, the others lack too, and a level-triggered socket with a queue
// would wake the worker for nothing, for ever.
void Worker::cannot_accept(int error) {
  ++accept_failures_;
  for (const auto& [id, acceptor] : service_->acceptors) acceptor->pause();
  if (!pause_timer_.armed()) pause_timer_.arm(kAcceptPause);
  const loop::TimePoint now = loop_.now();
  if (accept_failure_told_ && now - *accept_failure_told_ < kAcceptLogInterval) return;
  log::warn("accepting pauses for {} ms: {} ({} times)", kAcceptPause.count(), std::strerror(error),
            accept_failures_);
  accept_failure_told_ = now;
  accept_failures_ = 0;
}

void Worker::on_pause_over() {
  if (!service_) return;
  for (const auto& [id, acceptor] : service_->acceptors) acceptor->resume();
}

// Runs only while there are sessions, or free blocks to give up: an idle worker sleeps.
void Worker::on_trim() {
  service_->pool.trim();
  const bool has_pipes = service_->sessions.trim();
  const bool has_spare = tls::trim_record_memory() || has_pipes || service_->pool.bytes_held() > 0;
  return_heap();
  if (session_count() > 0 || has_spare) trim_timer_.arm(kTrimInterval);
}

}  // namespace tlsproxy::server
