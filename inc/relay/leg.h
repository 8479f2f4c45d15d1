// Leg: one side of a session: its socket, the loop's events for it, and the transport over it.
//
// Both legs are alike; which one is the client's is known to the session only. A leg answers the four
// verbs, whatever is behind them: a plain socket, TLS, or a backend built into the proxy (no socket).
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <variant>

#include "buffer/block_pool.h"
#include "loop/io_event.h"
#include "record/close_reason.h"
#include "relay/splice_pipe.h"
#include "tls/transport.h"
#include "transport/builtin.h"
#include "transport/io_result.h"
#include "transport/plain.h"
#include "transport/socket.h"

namespace tlsproxy::relay {

class Leg {
 public:
  explicit Leg(record::Side side) : side_(side) {}
  Leg(const Leg&) = delete;
  Leg& operator=(const Leg&) = delete;

  [[nodiscard]] record::Side side() const { return side_; }
  [[nodiscard]] transport::Socket& socket() { return socket_; }
  [[nodiscard]] loop::IoEvent& event() { return event_; }

  // Says what is behind the verbs from now on: a transport of type T, made from `args`.
  template <class T, class... Args>
  T& use(Args&&... args) {
    if constexpr (std::same_as<T, transport::Plain>) {
      return transport_.template emplace<T>(std::forward<Args>(args)...);
    } else {
      return *transport_.template emplace<std::unique_ptr<T>>(
          std::make_unique<T>(std::forward<Args>(args)...));
    }
  }
  // The TLS transport; null when the leg is not under TLS.
  [[nodiscard]] tls::Transport* tls() const {
    const auto* held = std::get_if<std::unique_ptr<tls::Transport>>(&transport_);
    return held == nullptr ? nullptr : held->get();
  }
  // Whether bytes pass unchanged between the session and the socket, so that they may be spliced.
  [[nodiscard]] bool is_plain() const { return std::holds_alternative<transport::Plain>(transport_); }

  // --- the verbs; a transport is in use ---
  [[nodiscard]] bool may_read() const;
  [[nodiscard]] bool may_write() const;
  transport::IoResult read(std::span<std::byte> room);
  transport::IoResult write(std::span<const std::byte> data);
  // The same through a pipe, for plain legs.
  transport::IoResult splice_to(SplicePipe& pipe);
  transport::IoResult splice_from(SplicePipe& pipe);
  // The orderly end of our direction; again on would_block.
  transport::IoResult shutdown();

  // Bytes that write() took and the socket has not yet (gathered TLS records).
  [[nodiscard]] bool has_backlog() const;
  transport::IoResult flush_backlog();

  // Whether the last read() left bytes inside the transport that no event will announce.
  [[nodiscard]] bool has_more_at_hand() const;
  // Whether a block was refused inside the transport since the last call.
  [[nodiscard]] bool take_starved();

  // --- how far it has come ---
  [[nodiscard]] bool input_ended() const { return input_ended_; }  // nothing more will be read

  // Works towards the end of this leg: tells the peer (in order, or so that it cannot take what it got for
  // complete), then reads and drops what still comes until the peer ends too, since closing with unread
  // bytes would make the kernel send a reset that destroys what was just told. True when it can be closed.
  bool wind_down(bool orderly);
  // Whether that waits for the peer's kernel to acknowledge bytes, which no event announces: look again.
  [[nodiscard]] bool awaits_acknowledgement() const { return awaits_acknowledgement_; }

  // Closes the socket and forgets the transport; the leg can be used anew.
  void close();

 private:
  // Most legs are plain: only the others pay for their transport.
  using Transport = std::variant<std::monostate, transport::Plain, std::unique_ptr<tls::Transport>,
                                 std::unique_ptr<transport::Echo>, std::unique_ptr<transport::Respond>>;

  transport::IoResult judge_input(transport::IoResult result);
  transport::IoResult judge_output(transport::IoResult result);
  bool tell_end(bool orderly);

  transport::Socket socket_;
  loop::IoEvent event_;
  Transport transport_;
  record::Side side_;
  bool input_ended_ = false;
  bool output_ended_ = false;
  bool broken_ = false;
  bool close_with_reset_ = false;
  bool awaits_acknowledgement_ = false;
};
static_assert(sizeof(Leg) <= 160, "every session holds two: 128 of it are libevent's event");

}  // namespace tlsproxy::relay
