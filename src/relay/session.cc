#include "relay/session.h"

#include <array>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "buffer/relay_buffer.h"
#include "log/log.h"
#include "wire/client_hello.h"

namespace tlsproxy::relay {
namespace {

using record::CloseReason;
using record::Side;
using transport::IoResult;
using transport::IoStatus;

// Bytes per direction and turn: enough for the largest block several times over, few enough that a fast
// session does not keep others waiting noticeably.
constexpr std::size_t kTurnBudget = 256U * 1024;

// How often an end that waits for acknowledgements looks again: nothing in the kernel announces them.
constexpr loop::Duration kAcknowledgePoll{20};

// RFC 8446, 6: alert descriptions we send before there is a TLS object.
constexpr std::uint8_t kAlertUnexpectedMessage = 10;
constexpr std::uint8_t kAlertDecodeError = 50;

CloseReason reason_of(IoStatus status) {
  switch (status) {
    case IoStatus::truncated:
      return CloseReason::truncated;
    case IoStatus::reset:
      return CloseReason::reset;
    case IoStatus::end:
    case IoStatus::ok:
    case IoStatus::would_block:
    case IoStatus::failed:
      break;
  }
  return CloseReason::protocol_error;
}

CloseReason reason_of(IoResult result) {
  const bool systems_fault = result.status == IoStatus::failed && result.error != 0;
  return systems_fault ? CloseReason::no_descriptor : reason_of(result.status);
}

bool is_reached(loop::TimePoint point) {
  return point != loop::TimePoint{};
}

}  // namespace

std::string_view to_string(State state) {
  switch (state) {
    case State::peek:
      return "peek";
    case State::handshake:
      return "handshake";
    case State::choose:
      return "choose";
    case State::connect:
      return "connect";
    case State::greet_backend:
      return "greet_backend";
    case State::relay:
      return "relay";
    case State::drain:
      return "drain";
    case State::linger:
      return "linger";
    case State::closed:
      return "closed";
  }
  return "unknown";
}

Session::Session(SessionHost& host, std::uint64_t id, os::Fd client, const os::SocketAddress& peer,
                 std::shared_ptr<Generation> generation, const Service& service)
    : host_(&host),
      generation_(std::move(generation)),
      service_(&service),
      start_(host.loop().now()),
      started_at_(std::chrono::system_clock::now()),
      id_(id),
      peer_(peer) {
  client_.socket().adopt(std::move(client));
}

Session::~Session() {
  client_.close();
  backend_.close();
  up_.discard(host_->means());
  down_.discard(host_->means());
}

void Session::start() {
  timer_.bind<&Session::on_timer>(host_->loop(), *this);
  client_.event().start<&Session::on_client_io>(host_->loop(), client_.socket().fd(),
                                                loop::IoEvent::Trigger::edge_both, *this);
  enter(State::peek);
  advance();
}

// --- the engine ----------------------------------------------------------------------------------

void Session::advance() {
  TLSPROXY_DCHECK(!advancing_, "one engine runs a session");
  advancing_ = true;
  State before;
  do {
    before = state_;
    switch (state_) {
      case State::peek:
        peek();
        break;
      case State::handshake:
        handshake();
        break;
      case State::choose:
        choose();
        break;
      case State::connect:
        connect();
        break;
      case State::greet_backend:
        greet_backend();
        break;
      case State::relay:
      case State::drain:
        relay();
        break;
      case State::linger:
        linger();
        break;
      case State::closed:
        break;
    }
  } while (state_ != before);
  advancing_ = false;
  check_invariants();
  if (state_ == State::closed) bury();
}

void Session::enter(State state) {
  state_ = state;
  phase_start_ = host_->loop().now();
  last_activity_ = phase_start_;
  // Nobody rests in choose, and nobody leaves closed.
  if (state_ != State::choose && state_ != State::closed) arm_timer();
}

// Lets go of both legs at once, while the object itself stays until the end of the turn.
void Session::bury() {
  if (std::exchange(buried_, true)) return;
  timer_.cancel();
  host_->ended(*this);
  log::debug("session {:016x}: {} by {}", id_, record::to_string(reason_), record::to_string(side_));
  client_.close();
  backend_.close();
}

void Session::check_invariants() const {
  TLSPROXY_DCHECK(state_ == State::closed || timer_.armed() || scheduled(),
                  "a session that nothing can wake does not exist");
  TLSPROXY_DCHECK(state_ != State::relay || (!up_finished_ && !down_finished_),
                  "a session relays while both directions are open");
  TLSPROXY_DCHECK(state_ != State::drain || up_finished_ != down_finished_,
                  "a session drains while one direction is open");
}

// --- the record ----------------------------------------------------------------------------------

record::SessionRecord Session::record() const {
  record::SessionRecord record;
  record.id = id_;
  record.started_at = started_at_;
  record.listener = service_->listener->name;
  if (upstream_ != nullptr) record.route = upstream_->backend->name;
  record.client = peer_;
  record.local = local_;
  if (server_ != nullptr) record.server = server_->address;
  record.tries = tries_;

  if (hello_ != nullptr) {
    record.sni = hello_->sni;
    const bool passed_through = service_->tls == nullptr;
    if (passed_through && !hello_->alpn_offered.empty()) record.alpn = hello_->alpn_offered.front();
  }
  if (const tls::Transport* transport = client_.tls(); transport != nullptr && is_reached(handshake_done_)) {
    record.tls = transport->facts();
    record.alpn = transport->alpn();
    record.client_subject = transport->peer_subject();
  }
  if (tls_failure_ != nullptr) {
    record.verify_error = tls_failure_->verify_error;
    record.alert = tls_failure_->alert;
  }

  record.bytes_from_client = up_.bytes_in();
  record.bytes_to_backend = up_.bytes_out();
  record.bytes_from_backend = down_.bytes_in();
  record.bytes_to_client = down_.bytes_out();

  record.start = start_;
  if (is_reached(handshake_done_)) record.handshake_done = handshake_done_;
  if (is_reached(connect_start_)) record.connect_start = connect_start_;
  if (is_reached(connect_done_)) record.connect_done = connect_done_;
  if (is_reached(first_byte_)) record.first_byte = first_byte_;
  record.end = host_->loop().now();
  record.reason = reason_;
  record.side = side_;
  return record;
}

record::TlsFailure& Session::tls_failure() {
  if (tls_failure_ == nullptr) tls_failure_ = std::make_unique<record::TlsFailure>();
  return *tls_failure_;
}

// --- peek: what the client says first ------------------------------------------------------------

void Session::peek() {
  const bool terminates = service_->tls != nullptr;
  const bool peeks = terminates || (service_->listener->tls_mode == config::TlsMode::passthrough &&
                                    service_->router.needs_hello());
  if (!peeks) {
    client_.use<transport::Plain>(client_.socket());
    return enter(State::choose);
  }
  buffer::RelayBuffer& hello = up_.first_bytes();
  while (state_ == State::peek && client_.socket().may_read()) {
    if (!hello.prepare(pool())) return wait_for_block();
    if (hello.room().empty() && !hello.enlarge(pool())) return wait_for_block();
    const IoResult got = client_.socket().read(hello.room());
    if (got.would_block()) {
      hello.release(pool());
      return;
    }
    if (!got.ok()) return close(CloseReason::client_left, Side::client);
    hello.commit(got.bytes);
    judge_hello(false);
  }
}

void Session::judge_hello(bool timed_out) {
  wire::ClientHello hello =
      wire::parse_client_hello(up_.first_bytes().pending(), service_->listener->preread_buffer);
  if (hello.verdict == wire::HelloVerdict::need_more && !timed_out) return;
  const bool tls = hello.verdict == wire::HelloVerdict::hello;
  if (tls) {
    hello_ = std::make_unique<record::HelloFacts>(
        record::HelloFacts{std::move(hello.sni).value_or(""), std::move(hello.alpn)});
  }
  if (service_->tls != nullptr) {
    if (tls) return accept_tls(hello_->sni);
    switch (hello.verdict) {
      case wire::HelloVerdict::not_tls:
        return refuse_hello(CloseReason::not_tls, kAlertUnexpectedMessage);
      case wire::HelloVerdict::malformed:
      case wire::HelloVerdict::too_large:
        return refuse_hello(CloseReason::bad_hello, kAlertDecodeError);
      case wire::HelloVerdict::need_more:
      case wire::HelloVerdict::hello:
        return close(CloseReason::handshake_timeout, Side::client);
    }
  }
  // Passed through: what is no hello is relayed too, if a route takes it.
  if (!choose_route()) {
    switch (hello.verdict) {
      case wire::HelloVerdict::not_tls:
        return close(CloseReason::not_tls, Side::client);
      case wire::HelloVerdict::malformed:
      case wire::HelloVerdict::too_large:
        return close(CloseReason::bad_hello, Side::client);
      case wire::HelloVerdict::need_more:
        return close(CloseReason::preread_timeout, Side::client);
      case wire::HelloVerdict::hello:
        return close(CloseReason::no_route, Side::proxy);
    }
  }
  client_.use<transport::Plain>(client_.socket());
  up_.first_bytes().release(pool());  // of one that said nothing
  up_.admit_first_bytes();
  enter(State::choose);
}

// Tells a client under no TLS object yet why it is refused, with the alert OpenSSL would have sent.
void Session::refuse_hello(CloseReason reason, std::uint8_t alert) {
  if (reason != CloseReason::not_tls) {
    const std::array<std::byte, 7> record{std::byte{0x15}, std::byte{3}, std::byte{3},    std::byte{0},
                                          std::byte{2},    std::byte{2}, std::byte{alert}};
    static_cast<void>(client_.socket().write(record));
    tls_failure().alert = record::TlsAlert{alert == kAlertDecodeError ? "decode_error" : "unexpected_message",
                                           true, Side::client};
  }
  close(reason, Side::client);
}

void Session::accept_tls(std::string_view name) {
  const tls::ServerContexts::Choice choice = service_->tls->choose(name);
  auto& transport = client_.use<tls::Transport>(client_.socket(), pool());
  if (!transport.accept(choice.context, up_.take_first_bytes(), name))
    return close(CloseReason::no_memory, Side::proxy);
  state_ = State::handshake;  // with the deadline of peek: both together are the handshake's
}

// --- handshake: TLS with the client --------------------------------------------------------------

void Session::handshake() {
  tls::Transport& transport = *client_.tls();
  const IoResult result = transport.handshake();
  if (result.would_block()) {
    if (transport.take_starved()) wait_for_block();
    return;
  }
  if (!result.ok()) return handshake_broke(result);
  transport.settle();
  handshake_done_ = host_->loop().now();
  enter(State::choose);
}

void Session::handshake_broke(IoResult result) {
  const tls::Transport& transport = *client_.tls();
  note_alert(client_, transport);
  const bool rejected = note_rejection(transport);
  if (transport.name_changed()) return close(CloseReason::name_changed, Side::client);
  if (result.status == IoStatus::truncated || result.status == IoStatus::reset) {
    return close(CloseReason::client_left, Side::client);
  }
  close(rejected ? CloseReason::certificate_rejected : CloseReason::handshake_failed, Side::client);
}

void Session::note_alert(const Leg& leg, const tls::Transport& transport) {
  if (transport.alert()) {
    tls_failure().alert =
        record::TlsAlert{transport.alert()->description, transport.alert()->sent, leg.side()};
  }
}

// Notes why the peer's certificate was not accepted; false when that was not what went wrong.
bool Session::note_rejection(const tls::Transport& transport) {
  std::string why = transport.verify_error();
  const bool rejected = !why.empty();
  if (rejected || tls_failure_ != nullptr) tls_failure().verify_error = std::move(why);
  return rejected;
}

// --- choose: route and backend -------------------------------------------------------------------

// Finds the upstream of the first route that matches; false when none does.
bool Session::choose_route() {
  route::Facts facts;
  facts.source = peer_;
  if (hello_ != nullptr) {
    facts.tls = true;
    facts.sni = hello_->sni;
    facts.alpn = hello_->alpn_offered;
  }
  const std::string negotiated(client_.tls() != nullptr ? client_.tls()->alpn() : std::string_view());
  if (!negotiated.empty()) facts.alpn = std::span(&negotiated, 1);
  const config::Route* route = service_->router.match(facts);
  if (route == nullptr) return false;
  upstream_ = &generation_->upstream(route->to.value);
  return true;
}

void Session::choose() {
  if (upstream_ == nullptr && !choose_route()) return close(CloseReason::no_route, Side::proxy);
  // From here on the TLS object tells what was negotiated; nobody asks what was offered.
  if (client_.tls() != nullptr) hello_->alpn_offered = std::vector<std::string>();
  switch (upstream_->backend->kind) {
    case config::BackendKind::echo:
      backend_.use<transport::Echo>(pool());
      return enter(State::relay);
    case config::BackendKind::respond:
      backend_.use<transport::Respond>(upstream_->backend->respond);
      return enter(State::relay);
    case config::BackendKind::servers:
      connect_start_ = host_->loop().now();
      return enter(State::connect);
  }
}

// --- connect: a server that answers --------------------------------------------------------------

void Session::connect() {
  listen_while_connecting();
  if (state_ != State::connect) return;
  while (true) {
    if (!backend_.socket().is_open() && !connect_next()) return;
    const IoResult result = backend_.socket().finish_connect();
    if (result.would_block()) return;
    if (result.ok()) break;
    server_failed(CloseReason::no_backend);
  }
  if (upstream_->tls == nullptr) {
    backend_.use<transport::Plain>(backend_.socket());
    return connected();
  }
  auto& transport = backend_.use<tls::Transport>(backend_.socket(), pool());
  if (!transport.connect(upstream_->tls->get(), upstream_->tls->expected_name(*server_->server))) {
    return close(CloseReason::no_memory, Side::proxy);
  }
  enter(State::greet_backend);
}

// Starts connecting to the next server that takes a connect; false when the session ended instead.
bool Session::connect_next() {
  const std::uint32_t cap = upstream_->backend->tries;
  for (;;) {
    route::EndpointPtr next;
    if (cap == 0 || tries_ < cap) next = upstream_->cluster->pick(failed_, host_->loop().now());
    if (next == nullptr) {
      close(last_failure_, Side::backend);
      return false;
    }
    server_ = std::move(next);
    ++tries_;
    const IoResult result = backend_.socket().connect(server_->address);
    if (result.ok()) break;
    if (result.status ==
        IoStatus::failed) {  // for lack of something of ours: no other server would do better
      close(CloseReason::no_descriptor, Side::proxy);
      return false;
    }
    server_failed(CloseReason::no_backend);
  }
  backend_.event().start<&Session::on_backend_io>(host_->loop(), backend_.socket().fd(),
                                                  loop::IoEvent::Trigger::edge_both, *this);
  enter(State::connect);  // each attempt has the whole connect timeout
  return true;
}

void Session::server_failed(CloseReason reason) {
  last_failure_ = reason;
  failed_.push_back(server_);
  upstream_->cluster->failed(*server_, host_->loop().now());
  log::debug("session {:016x}: server {} failed: {}", id_, server_->address.to_string(),
             record::to_string(reason));
  backend_.close();
}

void Session::connected() {
  upstream_->cluster->succeeded(*server_);
  connect_done_ = host_->loop().now();
  tls_failure_.reset();  // of a server tried before this one
  enter(State::relay);
}

// While a server is being connected: takes the client's first bytes, and notices when it goes. One that
// said something and then ended may well wait for the answer (its end is read after those bytes are
// delivered); one that ended without a word has nothing to wait for that we know of.
void Session::listen_while_connecting() {
  const Flow::Progress progress = up_.read_ahead(pool());
  if (up_.take_starved()) wait_for_block();
  if (progress == Flow::Progress::ended) close(CloseReason::client_left, Side::client);
}

// --- greet_backend: TLS with the server ----------------------------------------------------------

void Session::greet_backend() {
  listen_while_connecting();
  if (state_ != State::greet_backend) return;
  tls::Transport& transport = *backend_.tls();
  const IoResult result = transport.handshake();
  if (result.would_block()) {
    if (transport.take_starved()) wait_for_block();
    return;
  }
  if (result.ok()) {
    transport.settle();
    return connected();
  }
  note_alert(backend_, transport);
  server_failed(note_rejection(transport) ? CloseReason::backend_rejected : CloseReason::backend_tls_failed);
  enter(State::connect);
}

// --- relay and drain: two flows ------------------------------------------------------------------

void Session::relay() {
  std::size_t up_budget = kTurnBudget;
  std::size_t down_budget = kTurnBudget;
  for (;;) {
    const std::uint64_t before = up_.bytes_out() + down_.bytes_out();
    const std::uint64_t before_in = up_.bytes_in() + down_.bytes_in();
    const Flow::Progress up = up_finished_ ? Flow::Progress::blocked : up_.pump(host_->means(), up_budget);
    if (!settle(up_, up)) return;
    const Flow::Progress down =
        down_finished_ ? Flow::Progress::blocked : down_.pump(host_->means(), down_budget);
    if (!is_reached(first_byte_) && down_.bytes_in() > 0) first_byte_ = host_->loop().now();
    if (!settle(down_, down)) return;
    const bool moved =
        before != up_.bytes_out() + down_.bytes_out() || before_in != up_.bytes_in() + down_.bytes_in();
    if (moved) {
      last_activity_ = host_->loop().now();
      active_since_cool_ = true;
    }
    if (up == Flow::Progress::out_of_budget || down == Flow::Progress::out_of_budget) {
      host_->loop().schedule(*this);
      break;
    }
    // Another round only where one flow may have made way for the other (a built-in backend).
    if (!moved || (!up_.could_move() && !down_.could_move())) break;
  }
  if (up_.take_starved() | down_.take_starved()) wait_for_block();
  const bool warm = (client_.tls() != nullptr && client_.tls()->is_warm()) ||
                    (backend_.tls() != nullptr && backend_.tls()->is_warm());
  if (warm && !base::Hook<WarmTag>::linked()) host_->warmed_up(*this);
}

// Decides what an end of `flow` means; false when the session is not relaying any more.
bool Session::settle(Flow& flow, Flow::Progress progress) {
  if (progress == Flow::Progress::ended) {
    const IoResult end = flow.source_end();
    if (end.status == IoStatus::end) {
      finish_direction(flow);
    } else {
      if (tls::Transport* transport = flow.source().tls()) note_alert(flow.source(), *transport);
      close(reason_of(end), flow.source().side());
    }
  } else if (progress == Flow::Progress::failed) {
    // What the broken leg had sent before is still to be read, and then its own end ends the session.
    const bool opposite_over = &flow == &up_ ? down_finished_ : up_finished_;
    if (opposite_over || flow.sink_end().status != IoStatus::reset || flow.sink().input_ended()) {
      close(reason_of(flow.sink_end()), flow.sink().side());
    }
  }
  return state_ == State::relay || state_ == State::drain;
}

// The source of `flow` has ended in order and everything before is delivered: pass the end on.
void Session::finish_direction(Flow& flow) {
  bool& finished = &flow == &up_ ? up_finished_ : down_finished_;
  const bool other_finished = &flow == &up_ ? down_finished_ : up_finished_;
  // A respond backend has said all: keeping its client waiting for the other direction is of no use.
  const bool half_close =
      service_->listener->half_close && upstream_->backend->kind != config::BackendKind::respond;
  const IoResult result = flow.sink().shutdown();
  if (result.would_block()) return;
  if (!result.ok()) return close(reason_of(result), flow.sink().side());
  finished = true;
  if (!half_close || other_finished) return close(CloseReason::finished, flow.source().side());
  enter(State::drain);
}

// --- the end -------------------------------------------------------------------------------------

void Session::close(CloseReason reason, Side side) {
  if (state_ == State::linger || state_ == State::closed) {
    // A fast stop waits for nobody.
    if (reason != CloseReason::stopped || state_ == State::closed) return;
    enter(State::closed);
  } else {
    reason_ = reason;
    side_ = side;
    enter(State::linger);
  }
  if (!advancing_) advance();
}

void Session::linger() {
  if (client_.socket().is_open() && local_.size() == 0 && log::access_enabled()) {
    local_ = client_.socket().local_address();
  }
  const bool orderly = record::is_orderly(reason_);
  // A receiver that has not got all that was meant for it must not be told that it has.
  const bool client_done = client_.wind_down(orderly && !down_.has_undelivered());
  const bool backend_done = backend_.wind_down(orderly && !up_.has_undelivered());
  if ((client_done && backend_done) || reason_ == CloseReason::stopped) return enter(State::closed);
  if (client_.awaits_acknowledgement() || backend_.awaits_acknowledgement()) timer_.arm(kAcknowledgePoll);
}

// --- time ----------------------------------------------------------------------------------------

loop::TimePoint Session::deadline() const {
  const config::Timeouts& timeouts = service_->listener->timeouts;
  switch (state_) {
    case State::peek:
      return phase_start_ + (service_->tls != nullptr ? timeouts.handshake : timeouts.preread);
    case State::handshake:
      return phase_start_ + timeouts.handshake;
    case State::connect:
    case State::greet_backend:
      return phase_start_ + timeouts.connect;
    case State::relay:
      return last_activity_ + timeouts.idle;
    case State::drain:
      return last_activity_ + timeouts.half_close;
    case State::linger:
      return phase_start_ + timeouts.linger;
    case State::choose:
    case State::closed:
      break;
  }
  return phase_start_;
}

void Session::arm_timer() {
  timer_.arm_at(deadline());
}

void Session::on_timer() {
  if (deadline() <= host_->loop().now()) {
    advancing_ = true;  // what a deadline changes is carried on by the advance() below
    deadline_passed();
    advancing_ = false;
  } else {
    arm_timer();
  }
  advance();
}

void Session::deadline_passed() {
  switch (state_) {
    case State::peek:
      if (service_->tls != nullptr) return close(CloseReason::handshake_timeout, Side::client);
      return judge_hello(true);
    case State::handshake:
      return close(CloseReason::handshake_timeout, Side::client);
    case State::connect:
    case State::greet_backend:
      server_failed(CloseReason::connect_timeout);
      return enter(State::connect);
    case State::relay:
    case State::drain: {
      if (down_.has_undelivered()) return close(CloseReason::write_timeout, Side::client);
      if (up_.has_undelivered()) return close(CloseReason::write_timeout, Side::backend);
      return close(state_ == State::drain ? CloseReason::half_close_timeout : CloseReason::idle_timeout,
                   Side::proxy);
    }
    case State::linger:
      return enter(State::closed);
    case State::choose:
    case State::closed:
      break;
  }
}

// --- events --------------------------------------------------------------------------------------

void Session::on_client_io(loop::IoNews news) {
  client_.socket().note(news.readable, news.writable, news.hangup);
  advance();
}

void Session::on_backend_io(loop::IoNews news) {
  backend_.socket().note(news.readable, news.writable, news.hangup);
  advance();
}

void Session::block_available() {
  host_->loop().schedule(*this);
}

void Session::wait_for_block() {
  pool().wait(*this);
}

bool Session::cool() {
  if (std::exchange(active_since_cool_, false)) return true;
  for (Leg* leg : {&client_, &backend_}) {
    if (leg->tls() != nullptr) leg->tls()->cool();
  }
  return false;
}

}  // namespace tlsproxy::relay
