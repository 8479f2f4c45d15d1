#include "route/lookup.h"

#include <ares.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace tlsproxy::route {
namespace {

// Each server is asked twice, the second time for twice as long.
constexpr int kTries = 2;
constexpr std::int64_t kTimeOfTries = 3;
constexpr std::int64_t kLongestTry = 3'600'000;  // ms; c-ares counts in int and doubles it

void use_ares() {
  struct Library {
    Library() { ares_library_init(ARES_LIB_INIT_ALL); }
    ~Library() { ares_library_cleanup(); }
  };
  static const Library library;
}

std::string csv(const std::vector<os::SocketAddress>& servers) {
  std::string list;
  for (const os::SocketAddress& server : servers) list += (list.empty() ? "" : ",") + server.to_string();
  return list;
}

int family_of(const config::Resolver& config) {
  if (config.ipv4 && config.ipv6) return AF_UNSPEC;
  return config.ipv4 ? AF_INET : AF_INET6;
}

}  // namespace

Lookup::Lookup(loop::Loop& loop, const config::Resolver& config, std::string host)
    : loop_(loop), config_(config), host_(std::move(host)), servers_(csv(config.servers)) {
  use_ares();
  tick_.bind<&Lookup::on_tick>(loop, *this);
  deadline_.bind<&Lookup::on_deadline>(loop, *this);
}

Lookup::~Lookup() {
  close();
}

void Lookup::start() {
  TLSPROXY_CHECK(!asking(), "a lookup asks one question at a time");
  outcome_.reset();
  if (!open()) return finished(*std::exchange(outcome_, std::nullopt));
  deadline_.arm(config_.timeout);
  ares_addrinfo_hints hints{};
  hints.ai_flags = ARES_AI_NOSORT;  // sorting would connect sockets, and balancing ignores the order
  hints.ai_family = family_of(config_);
  hints.ai_socktype = SOCK_STREAM;
  ares_getaddrinfo(
      channel_, host_.c_str(), nullptr, &hints,
      [](void* self, int status, int, ares_addrinfo* answer) {
        static_cast<Lookup*>(self)->answered(status, answer);
        if (answer != nullptr) ares_freeaddrinfo(answer);
      },
      this);
  // Only the hosts file knows an answer at once.
  if (outcome_) outcome_->from_hosts = !outcome_->addresses.empty();
  conclude_or_wait();
}

// Makes the channel; when that fails, the outcome says why.
bool Lookup::open() {
  char lookups[] = "fb";  // the hosts file, then DNS
  ares_options options{};
  options.lookups = lookups;
  options.tries = kTries;
  const auto parts = std::max<std::int64_t>(kTimeOfTries, static_cast<std::int64_t>(config_.servers.size()));
  options.timeout =
      static_cast<int>(std::clamp<std::int64_t>(config_.timeout.count() / parts, 1, kLongestTry));
  options.sock_state_cb = [](void* self, ares_socket_t fd, int read, int write) {
    static_cast<Lookup*>(self)->watch(fd, read != 0, write != 0);
  };
  options.sock_state_cb_data = this;
  int status = ares_init_options(
      &channel_, &options, ARES_OPT_LOOKUPS | ARES_OPT_TRIES | ARES_OPT_TIMEOUTMS | ARES_OPT_SOCK_STATE_CB);
  if (status == ARES_SUCCESS && !servers_.empty()) {
    status = ares_set_servers_ports_csv(channel_, servers_.c_str());
  }
  if (status == ARES_SUCCESS) return true;
  close();
  outcome_.emplace().failure = ares_strerror(status);
  return false;
}

// Also ends a question that is being asked; whom it concerned is not called.
void Lookup::close() {
  tick_.cancel();
  deadline_.cancel();
  if (channel_ != nullptr) ares_destroy(std::exchange(channel_, nullptr));
  TLSPROXY_DCHECK(sockets_.empty(), "c-ares tells of each socket it closes");
}

// c-ares expects level-triggered news, and wants to write only while it has something to write.
void Lookup::watch(int fd, bool read, bool write) {
  const auto found =
      std::find_if(sockets_.begin(), sockets_.end(), [fd](const auto& s) { return s->fd == fd; });
  if (!read && !write) {
    if (found != sockets_.end()) sockets_.erase(found);
    return;
  }
  Socket& socket =
      found != sockets_.end() ? **found : *sockets_.emplace_back(std::make_unique<Socket>(*this, fd));
  socket.event.stop();
  socket.event.start<&Socket::on_news>(
      loop_, fd, write ? loop::IoEvent::Trigger::level_both : loop::IoEvent::Trigger::level_read, socket);
}

// Called by c-ares once for each question, from within any of its functions: only takes notes.
void Lookup::answered(int status, const ares_addrinfo* answer) {
  LookupOutcome& outcome = outcome_.emplace();
  if (status != ARES_SUCCESS || answer == nullptr) {
    outcome.failure = ares_strerror(status);
    return;
  }
  int ttl = INT_MAX;
  for (const ares_addrinfo_cname* cname = answer->cnames; cname != nullptr; cname = cname->next) {
    ttl = std::min(ttl, cname->ttl);
  }
  for (const ares_addrinfo_node* node = answer->nodes; node != nullptr; node = node->ai_next) {
    ttl = std::min(ttl, node->ai_ttl);
    outcome.addresses.push_back(
        os::SocketAddress::from_sockaddr(node->ai_addr, static_cast<socklen_t>(node->ai_addrlen)));
  }
  outcome.ttl = std::chrono::seconds(std::max(0, ttl));
  if (outcome.addresses.empty()) outcome.failure = ares_strerror(ARES_ENODATA);
}

void Lookup::Socket::on_news(loop::IoNews news) {
  // The socket may be closed, and this with it, before process() returns.
  owner.process(news.readable ? fd : ARES_SOCKET_BAD, news.writable ? fd : ARES_SOCKET_BAD);
}

void Lookup::process(int readable_fd, int writable_fd) {
  ares_process_fd(channel_, readable_fd, writable_fd);
  conclude_or_wait();
}

void Lookup::on_tick() {
  process(ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

void Lookup::on_deadline() {
  // What has been answered by now is the answer: A records are not lost to a silent AAAA.
  ares_cancel(channel_);
  TLSPROXY_DCHECK(outcome_, "a cancelled question has an outcome");
  if (outcome_->addresses.empty()) {
    outcome_->failure = "no answer within " + std::to_string(config_.timeout.count()) + " ms";
  }
  conclude_or_wait();
}

void Lookup::conclude_or_wait() {
  if (outcome_) {
    close();
    return finished(*std::exchange(outcome_, std::nullopt));
  }
  timeval wait{};
  if (ares_timeout(channel_, nullptr, &wait) == nullptr) return tick_.cancel();
  // One more than the rounded time: a tick that comes too early would only be repeated.
  tick_.arm(std::chrono::milliseconds(wait.tv_sec * 1000 + wait.tv_usec / 1000 + 1));
}

}  // namespace tlsproxy::route
