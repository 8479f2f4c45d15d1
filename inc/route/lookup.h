// Lookup: one question at a time for the addresses of a host name, asked without blocking (c-ares).
//
//   idle --start()--> asking --answer, failure or deadline--> idle, and finished() is called
//
// Each question has a c-ares channel of its own: so resolv.conf is read anew as other programs do, and
// ending one question at its deadline leaves the others alone. /etc/hosts is consulted first.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/model.h"
#include "loop/io_event.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "os/address.h"

struct ares_addrinfo;
struct ares_channeldata;

namespace tlsproxy::route {

struct LookupOutcome {
  std::vector<os::SocketAddress> addresses;  // with port 0; none: it failed
  std::string failure;                       // why, in words
  std::chrono::seconds ttl{0};               // the least one of the answer
  bool from_hosts = false;                   // /etc/hosts answered, no server was asked
};

class Lookup {
 public:
  // `config` must outlive the lookup.
  Lookup(loop::Loop& loop, const config::Resolver& config, std::string host);
  virtual ~Lookup();
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  // Asks; not while asking. Ends with finished() after config.timeout at the latest.
  void start();

  [[nodiscard]] bool asking() const { return channel_ != nullptr; }
  [[nodiscard]] const std::string& host() const { return host_; }

 private:
  // Called once for each start(), from the loop or from start() itself, as its last deed: the callee may
  // start again or destroy the lookup.
  virtual void finished(LookupOutcome outcome) = 0;

  // One of c-ares' sockets.
  struct Socket {
    Socket(Lookup& its_owner, int its_fd) : owner(its_owner), fd(its_fd) {}
    void on_news(loop::IoNews news);
    Lookup& owner;
    int fd;
    loop::IoEvent event;
  };

  bool open();
  void close();
  void watch(int fd, bool read, bool write);
  void answered(int status, const ares_addrinfo* answer);
  void process(int readable_fd, int writable_fd);
  void conclude_or_wait();
  void on_tick();
  void on_deadline();

  loop::Loop& loop_;
  const config::Resolver& config_;
  std::string host_;
  std::string servers_;  // config_.servers as c-ares wants them
  ares_channeldata* channel_ = nullptr;
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::optional<LookupOutcome> outcome_;
  loop::Timer tick_;      // c-ares' own retries
  loop::Timer deadline_;  // of the whole question
};

}  // namespace tlsproxy::route
