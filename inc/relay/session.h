// Session: one client connection from accept to its end.
//
//   peek            what the client says first, when it matters: its ClientHello (SNI, ALPN)
//   handshake       TLS with the client
//   choose          the route, and where it leads
//   connect         a server; the next one on failure
//   greet_backend   TLS with the server
//   relay           two flows
//   drain           one flow is over
//   linger          both sides are told the end
//   closed
//
// It owns two Legs, two Flows, one timer, and notes of what happened. State is a word, it owns nothing.
// advance() is the only engine: whatever happens (an event, the timer, a block that came back) it runs the
// states in order as far as they go, and steps over those that do not apply. Every state has a deadline, and
// may end in close(), the only way to end.
//
// Life: made and listed by Sessions, which also destroys it, at the end of the loop's turn. Methods report,
// nobody deletes `this`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "buffer/block_pool.h"
#include "loop/io_event.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "os/address.h"
#include "record/session_record.h"
#include "relay/flow.h"
#include "relay/generation.h"
#include "relay/leg.h"
#include "route/cluster.h"

namespace tlsproxy::relay {

enum class State : std::uint8_t {
  peek,
  handshake,
  choose,
  connect,
  greet_backend,
  relay,
  drain,
  linger,
  closed
};
std::string_view to_string(State state);

struct SessionTag;
struct WarmTag;
class Session;

// What a session needs from the worker it lives in.
class SessionHost {
 public:
  virtual loop::Loop& loop() = 0;
  virtual Means& means() = 0;
  // The session holds record buffers inside OpenSSL, and wants cool() when it has been quiet.
  virtual void warmed_up(Session& session) = 0;
  // The session is over and closes its legs next: its host asks for its record, if it wants it, and retires
  // it.
  virtual void ended(Session& session) = 0;

 protected:
  ~SessionHost() = default;
};

class Session final : public loop::Task,
                      public buffer::BlockWaiter,
                      public base::Hook<SessionTag>,
                      public base::Hook<WarmTag> {
 public:
  // `client` is accepted and non-blocking. `host` must outlive the session.
  Session(SessionHost& host, std::uint64_t id, os::Fd client, const os::SocketAddress& peer,
          std::shared_ptr<Generation> generation, const Service& service);
  ~Session() override;

  // Registers with the loop and goes as far as it can. May end the session.
  void start();

  // Ends it from outside (drain, stop).
  void close(record::CloseReason reason, record::Side side);

  // Lets go of what is only kept warm for bulk. True when there was traffic since the last call, so that
  // it stays warm.
  bool cool();

  [[nodiscard]] State state() const { return state_; }
  // What has happened so far. Its views are valid until the legs are closed.
  [[nodiscard]] record::SessionRecord record() const;
  [[nodiscard]] const Generation& generation() const { return *generation_; }

  // loop::Task and buffer::BlockWaiter
  void run_ready() override { advance(); }
  void block_available() override;

 private:
  [[nodiscard]] buffer::BlockPool& pool() const { return host_->means().blocks; }

  // --- the engine ---
  void advance();
  void peek();
  void handshake();
  void choose();
  void connect();
  void greet_backend();
  void relay();
  void linger();

  // --- steps of it ---
  void enter(State state);
  void bury();
  void judge_hello(bool timed_out);
  void refuse_hello(record::CloseReason reason, std::uint8_t alert);
  void accept_tls(std::string_view name);
  void handshake_broke(transport::IoResult result);
  bool choose_route();
  bool connect_next();
  void server_failed(record::CloseReason reason);
  void connected();
  void listen_while_connecting();
  bool settle(Flow& flow, Flow::Progress progress);
  void finish_direction(Flow& flow);
  record::TlsFailure& tls_failure();
  void note_alert(const Leg& leg, const tls::Transport& transport);
  bool note_rejection(const tls::Transport& transport);

  // --- time ---
  [[nodiscard]] loop::TimePoint deadline() const;
  void arm_timer();
  void on_timer();
  void deadline_passed();

  // --- events ---
  void on_client_io(loop::IoNews news);
  void on_backend_io(loop::IoNews news);
  void check_invariants() const;
  void wait_for_block();

  // --- what it serves ---
  SessionHost* host_;
  std::shared_ptr<Generation> generation_;
  const Service* service_;
  Upstream* upstream_ = nullptr;  // once a route is chosen

  // --- its two sides, and what moves between them ---
  Leg client_{record::Side::client};
  Leg backend_{record::Side::backend};
  Flow up_{client_, backend_};  // its buffer holds the hello during peek
  Flow down_{backend_, client_};

  // --- where it connects to ---
  route::EndpointPtr server_;               // in use, or the last that failed
  std::vector<route::EndpointPtr> failed_;  // not to be tried again

  // --- time; a point that was not reached is zero ---
  loop::Timer timer_;
  loop::TimePoint phase_start_{};    // of the current state
  loop::TimePoint last_activity_{};  // last byte moved, in relay and drain
  loop::TimePoint start_;
  loop::TimePoint handshake_done_{};
  loop::TimePoint connect_start_{};
  loop::TimePoint connect_done_{};  // with TLS to the backend, when that is done too
  loop::TimePoint first_byte_{};    // from the backend
  std::chrono::system_clock::time_point started_at_;

  // --- who it is, for its record ---
  std::uint64_t id_;
  os::SocketAddress peer_;
  os::SocketAddress local_;                          // asked for when it ends, while the kernel knows
  std::unique_ptr<record::HelloFacts> hello_;        // null: none, or not looked at
  std::unique_ptr<record::TlsFailure> tls_failure_;  // null: none

  // --- small things, together ---
  std::uint32_t tries_ = 0;
  State state_ = State::peek;
  record::CloseReason reason_ = record::CloseReason::finished;
  record::Side side_ = record::Side::proxy;
  record::CloseReason last_failure_ = record::CloseReason::no_backend;  // of the servers tried
  bool up_finished_ = false;
  bool down_finished_ = false;
  bool active_since_cool_ = false;
  bool advancing_ = false;
  bool buried_ = false;
};
// With what libevent keeps per descriptor, an idle plain session stays below 1 KiB (see ARCHITECTURE.md).
static_assert(sizeof(Session) <= 904, "memory per session is a budget");

}  // namespace tlsproxy::relay
