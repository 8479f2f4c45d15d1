// RecordLayer: what is left of TLS 1.3 when the handshake is over: application data in protected records, and
// the few messages beside it (RFC 8446, 4.6, 5 and 6). It takes over from OpenSSL, whose own record layer
// copies every byte twice more in each direction, and whose connection object (10 KiB) need not be kept then.
//
//   read:  input, where the socket's bytes are --open--> the caller's room
//   write: the caller's bytes --seal--> output, from where they are sent
//
// It knows neither sockets nor blocks: tls::Transport moves the bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tls/traffic_key.h"

namespace tlsproxy::tls {

// RFC 8446, 6: those we send or look at.
enum class AlertCode : std::uint8_t {
  close_notify = 0,
  unexpected_message = 10,
  bad_record_mac = 20,
  record_overflow = 22,
  illegal_parameter = 47,
  decode_error = 50,
  internal_error = 80,
  user_canceled = 90,
};

class RecordLayer {
 public:
  enum class Role : std::uint8_t { server, client };

  // `suite` must outlive it.
  RecordLayer(const Suite& suite, Role role);

  // Takes the traffic secrets and how many records OpenSSL has written under ours (session tickets); it has
  // read none under theirs. False: no memory.
  [[nodiscard]] bool take_over(const Secret& ours, const Secret& theirs, std::uint64_t written);

  // What read() did with the beginning of the input.
  struct Step {
    enum class Kind : std::uint8_t {
      incomplete,  // more bytes are needed: see bytes_wanted()
      moved,       // `bytes` of content are in the room (0: the record had none)
      closed,      // the peer ended its direction in order
      alerted,     // the peer reports `alert` and is gone
      violated,    // the peer broke the protocol: it should be told `alert`
    };
    Kind kind = Kind::incomplete;
    std::size_t consumed = 0;  // bytes at the front of the input that are done with
    std::size_t bytes = 0;
    AlertCode alert = AlertCode::close_notify;
  };

  // Reads at most one record. `input` starts at a record's first byte, and with what the last call has not
  // consumed; it is overwritten. A content larger than `room`, which must not be empty, is given in parts.
  Step read(std::span<std::byte> input, std::span<std::byte> room);

  // Whether read() would do something with this input.
  [[nodiscard]] bool can_read(std::span<const std::byte> input) const {
    return opened_ || (input.size() >= kRecordHeader && input.size() >= bytes_wanted(input));
  }

  // The size of the record that `input` starts with; of a header where even that is not all there. At most
  // kRecordHeader + kLargestPayload: a larger one is refused as soon as its header is there.
  static std::size_t bytes_wanted(std::span<const std::byte> input);

  // Makes the record of at most kLargestPlaintext bytes at `out`; its size. Before it a KeyUpdate when one
  // is due: room for kRecordOverhead + kKeyUpdateRecord more must be there. 0: OpenSSL failed.
  [[nodiscard]] std::size_t write(std::span<const std::byte> content, std::byte* out);
  static constexpr std::size_t kKeyUpdateRecord = 5 + kRecordOverhead;

  // Makes an alert's record at `out`, kAlertRecord bytes; 0: OpenSSL failed.
  [[nodiscard]] std::size_t write_alert(AlertCode code, std::byte* out);
  static constexpr std::size_t kAlertRecord = 2 + kRecordOverhead;

 private:
  // A message of the handshake protocol, which may come in pieces (RFC 8446, 5.1).
  struct Message {
    std::array<std::uint8_t, 4> header{};
    std::uint8_t header_bytes = 0;
    std::size_t body_left = 0;
    bool key_update = false;
    [[nodiscard]] bool begun() const { return header_bytes > 0; }
  };

  // Content bytes of an opened record.
  struct Content {
    std::span<const std::byte> in_room;
    std::span<const std::byte> in_record;
    [[nodiscard]] std::size_t size() const { return in_room.size() + in_record.size(); }
    [[nodiscard]] std::uint8_t at(std::size_t i) const;
  };

  Step open_record(std::span<std::byte> record, std::span<std::byte> room);
  Step give_rest(std::span<const std::byte> input, std::span<std::byte> room);
  Step take_alert(const Content& content) const;
  Step take_messages(const Content& content);
  Step take_key_update(std::uint8_t request);
  static Step violation(AlertCode alert) { return {Step::Kind::violated, 0, 0, alert}; }

  Role role_;
  bool opened_ = false;  // the record at the input's front is open, and part of its content still there
  bool answer_due_ = false;
  std::uint8_t idle_records_ = 0;  // in a row without application data
  std::uint16_t record_size_ = 0;  // of the opened record
  std::uint16_t content_head_ = 0;
  std::uint16_t content_end_ = 0;
  Message message_;
  TrafficKey sealing_;
  TrafficKey opening_;
};

}  // namespace tlsproxy::tls
