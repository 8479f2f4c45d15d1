#include "relay/leg.h"

#include <array>
#include <type_traits>

#include "base/check.h"

namespace tlsproxy::relay {
namespace {

using transport::IoResult;
using transport::IoStatus;

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// What `verb` returns of the transport itself, wherever it lies; `without` when there is none.
template <class Transports, class Result, class Verb>
Result on_transport(const Transports& transport, Result without, Verb verb) {
  return std::visit(Overloaded{[&](std::monostate) -> Result { return without; },
                               [&](transport::Plain plain) -> Result { return verb(plain); },
                               [&](const auto& held) -> Result { return verb(*held); }},
                    transport);
}

constexpr std::size_t kDrainPerTurn = 256U * 1024;

}  // namespace

bool Leg::may_read() const {
  return on_transport(transport_, false, [](const auto& t) { return t.may_read(); });
}

bool Leg::may_write() const {
  return on_transport(transport_, false, [](const auto& t) { return t.may_write(); });
}

IoResult Leg::read(std::span<std::byte> room) {
  return judge_input(on_transport(transport_, IoResult::blocked(), [&](auto& t) { return t.read(room); }));
}

IoResult Leg::write(std::span<const std::byte> data) {
  return judge_output(on_transport(transport_, IoResult::blocked(), [&](auto& t) { return t.write(data); }));
}

IoResult Leg::splice_to(SplicePipe& pipe) {
  return judge_input(pipe.fill(socket_));
}

IoResult Leg::splice_from(SplicePipe& pipe) {
  return judge_output(pipe.drain(socket_));
}

IoResult Leg::judge_input(IoResult result) {
  if (result.ok() || result.would_block()) return result;
  // A write may have learnt of the reset first, and taken it: the kernel reports it once, then an end.
  if (result.status == IoStatus::end && broken_) result.status = IoStatus::reset;
  if (result.status == IoStatus::reset) broken_ = true;
  input_ended_ = true;
  return result;
}

IoResult Leg::judge_output(IoResult result) {
  if (result.status == IoStatus::reset) broken_ = true;
  return result;
}

IoResult Leg::shutdown() {
  if (output_ended_) return IoResult::done();
  // Before a transport is chosen (while peeking) the end is that of the bare socket.
  const bool chosen = !std::holds_alternative<std::monostate>(transport_);
  const IoResult result =
      chosen ? on_transport(transport_, IoResult::done(), [](auto& t) { return t.shutdown(); })
             : transport::Plain(socket_).shutdown();
  if (result.ok()) output_ended_ = true;
  if (result.status == IoStatus::reset) broken_ = true;
  return result;
}

bool Leg::has_backlog() const {
  return tls() != nullptr && tls()->has_backlog();
}

IoResult Leg::flush_backlog() {
  if (tls() == nullptr) return IoResult::done();
  const IoResult result = tls()->flush();
  if (result.status == IoStatus::reset) broken_ = true;
  return result;
}

bool Leg::has_more_at_hand() const {
  return tls() != nullptr && tls()->has_bytes_at_hand();
}

bool Leg::take_starved() {
  if (auto* under_tls = tls()) return under_tls->take_starved();
  if (const auto* echo = std::get_if<std::unique_ptr<transport::Echo>>(&transport_))
    return (*echo)->starved();
  return false;
}

bool Leg::tell_end(bool orderly) {
  if (orderly) {
    const IoResult result = shutdown();
    if (!result.ok() && !result.would_block()) broken_ = true;
    return !result.would_block();
  }
  if (auto* under_tls = tls()) {
    // A FIN without close_notify tells a TLS peer all it needs (RFC 8446, 6.1).
    const IoResult result = under_tls->shutdown_truncated();
    if (result.ok()) output_ended_ = true;
    if (!result.ok() && !result.would_block()) broken_ = true;
    return !result.would_block();
  }
  // A plain peer knows a truncated stream only by a reset, and a reset makes its kernel and ours drop
  // what is on the way: so what did arrive must be acknowledged first.
  awaits_acknowledgement_ = socket_.unacknowledged() > 0;
  close_with_reset_ = !awaits_acknowledgement_;
  return close_with_reset_;
}

bool Leg::wind_down(bool orderly) {
  if (!socket_.is_open() || socket_.is_connecting()) return true;
  if (!broken_ && !output_ended_ && !close_with_reset_ && !tell_end(orderly)) return false;
  if (broken_ || close_with_reset_) return true;
  std::array<std::byte, 16384> dropped;
  for (std::size_t total = 0; !input_ended_ && socket_.may_read() && total < kDrainPerTurn;) {
    const IoResult result = socket_.read(dropped);
    total += result.bytes;
    if (!result.ok() && !result.would_block()) input_ended_ = true;
  }
  return input_ended_;
}

void Leg::close() {
  event_.stop();
  transport_.emplace<std::monostate>();
  if (close_with_reset_) {
    socket_.close_with_reset();
  } else {
    socket_.close();
  }
  input_ended_ = output_ended_ = broken_ = close_with_reset_ = awaits_acknowledgement_ = false;
}

}  // namespace tlsproxy::relay
