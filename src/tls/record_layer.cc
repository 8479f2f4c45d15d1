#include "tls/record_layer.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tlsproxy::tls {
namespace {

// RFC 8446, 4: handshake types that may come after the handshake.
constexpr std::uint8_t kNewSessionTicket = 4;
constexpr std::uint8_t kKeyUpdate = 24;

// RFC 8446, 4.6.3.
constexpr std::uint8_t kUpdateNotRequested = 0;
constexpr std::uint8_t kUpdateRequested = 1;

// A ticket of this size is refused; the largest there can be is 2^24 bytes of work for nothing.
constexpr std::size_t kLargestMessage = 65536;

// Records without application data in a row. Each costs us and gets the peer nothing: nobody needs more.
constexpr std::uint8_t kMostIdleRecords = 32;

}  // namespace

RecordLayer::RecordLayer(const Suite& suite, Role role)
    : role_(role), sealing_(suite, TrafficKey::Use::seal), opening_(suite, TrafficKey::Use::open) {}

bool RecordLayer::take_over(const Secret& ours, const Secret& theirs, std::uint64_t written) {
  return sealing_.install(ours, written) && opening_.install(theirs);
}

std::uint8_t RecordLayer::Content::at(std::size_t i) const {
  return static_cast<std::uint8_t>(i < in_room.size() ? in_room[i] : in_record[i - in_room.size()]);
}

std::size_t RecordLayer::bytes_wanted(std::span<const std::byte> input) {
  if (input.size() < kRecordHeader) return kRecordHeader;
  const std::size_t payload = static_cast<std::size_t>(input[3]) << 8U | static_cast<std::size_t>(input[4]);
  return kRecordHeader + (payload <= kLargestPayload ? payload : 0);
}

RecordLayer::Step RecordLayer::read(std::span<std::byte> input, std::span<std::byte> room) {
  TLSPROXY_DCHECK(!room.empty(), "what is read has somewhere to go");
  if (opened_) return give_rest(input, room);
  if (!can_read(input)) return {};
  // The header is not encrypted: who it came from is known only after the payload is opened, but no peer in
  // order sends anything else here (RFC 8446, 5).
  if (input[0] != static_cast<std::byte>(ContentType::application_data))
    return violation(AlertCode::unexpected_message);
  const std::size_t size = bytes_wanted(input);
  if (size == kRecordHeader && (input[3] | input[4]) != std::byte{0})
    return violation(AlertCode::record_overflow);
  return open_record(input.first(size), room);
}

RecordLayer::Step RecordLayer::open_record(std::span<std::byte> record, std::span<std::byte> room) {
  const auto opened = opening_.open(record, room);
  if (!opened) return violation(AlertCode::bad_record_mac);
  if (record.size() - kRecordHeader - kRecordTag > kLargestPlaintext + 1)
    return violation(AlertCode::record_overflow);
  const std::size_t direct = std::min(opened->size, room.size());
  const Content content{room.first(direct), record.subspan(kRecordHeader + direct, opened->size - direct)};

  if (opened->type == ContentType::application_data && !message_.begun()) {
    if (opened->size == 0) {
      if (++idle_records_ > kMostIdleRecords) return violation(AlertCode::unexpected_message);
      return {Step::Kind::moved, record.size(), 0, {}};
    }
    idle_records_ = 0;
    if (direct == opened->size) return {Step::Kind::moved, record.size(), direct, {}};
    opened_ = true;
    record_size_ = static_cast<std::uint16_t>(record.size());
    content_head_ = static_cast<std::uint16_t>(kRecordHeader + direct);
    content_end_ = static_cast<std::uint16_t>(kRecordHeader + opened->size);
    return {Step::Kind::moved, 0, direct, {}};
  }

  Step step;
  if (++idle_records_ > kMostIdleRecords) {
    step = violation(AlertCode::unexpected_message);
  } else if (opened->type == ContentType::handshake) {
    step = take_messages(content);
  } else if (opened->type == ContentType::alert && !message_.begun()) {
    step = take_alert(content);
  } else {
    step = violation(AlertCode::unexpected_message);
  }
  step.consumed = record.size();
  return step;
}

RecordLayer::Step RecordLayer::give_rest(std::span<const std::byte> input, std::span<std::byte> room) {
  const std::size_t bytes = std::min<std::size_t>(room.size(), content_end_ - content_head_);
  std::memcpy(room.data(), input.data() + content_head_, bytes);
  content_head_ = static_cast<std::uint16_t>(content_head_ + bytes);
  opened_ = content_head_ < content_end_;
  return {Step::Kind::moved, opened_ ? 0U : record_size_, bytes, {}};
}

// RFC 8446, 6: whatever its level says, every alert but these two is fatal.
RecordLayer::Step RecordLayer::take_alert(const Content& content) const {
  if (content.size() != 2) return violation(AlertCode::decode_error);
  const auto code = static_cast<AlertCode>(content.at(1));
  if (code == AlertCode::close_notify) return {Step::Kind::closed, 0, 0, code};
  if (code == AlertCode::user_canceled) return {Step::Kind::moved, 0, 0, {}};
  return {Step::Kind::alerted, 0, 0, code};
}

RecordLayer::Step RecordLayer::take_messages(const Content& content) {
  if (content.size() == 0) return violation(AlertCode::unexpected_message);  // RFC 8446, 5.1
  for (std::size_t i = 0; i < content.size();) {
    if (message_.header_bytes < message_.header.size()) {
      message_.header[message_.header_bytes++] = content.at(i++);
      if (message_.header_bytes < message_.header.size()) continue;
      const auto& header = message_.header;
      message_.body_left = std::size_t{header[1]} << 16U | std::size_t{header[2]} << 8U | header[3];
      message_.key_update = header[0] == kKeyUpdate;
      const bool ticket = header[0] == kNewSessionTicket && role_ == Role::client;
      if (!message_.key_update && !ticket) return violation(AlertCode::unexpected_message);
      if (message_.key_update ? message_.body_left != 1 : message_.body_left > kLargestMessage)
        return violation(AlertCode::decode_error);
    } else if (message_.key_update) {
      // The key changes with the next record: the message must end this one (RFC 8446, 5.1).
      if (i + 1 != content.size()) return violation(AlertCode::unexpected_message);
      message_ = {};
      return take_key_update(content.at(i));
    } else {
      // Tickets are not used: see ARCHITECTURE.md.
      const std::size_t skipped = std::min(message_.body_left, content.size() - i);
      i += skipped;
      message_.body_left -= skipped;
    }
    if (message_.header_bytes == message_.header.size() && message_.body_left == 0) message_ = {};
  }
  return {Step::Kind::moved, 0, 0, {}};
}

RecordLayer::Step RecordLayer::take_key_update(std::uint8_t request) {
  if (request != kUpdateNotRequested && request != kUpdateRequested)
    return violation(AlertCode::illegal_parameter);
  if (!opening_.advance()) return violation(AlertCode::internal_error);
  // One answer serves several requests (RFC 8446, 4.6.3). It goes before the next data, where it costs no
  // send of its own; who sends nothing owes nothing.
  answer_due_ = answer_due_ || request == kUpdateRequested;
  return {Step::Kind::moved, 0, 0, {}};
}

std::size_t RecordLayer::write(std::span<const std::byte> content, std::byte* out) {
  std::size_t update = 0;
  if (answer_due_ || sealing_.is_worn()) {
    const std::array<std::byte, 5> message{std::byte{kKeyUpdate}, std::byte{0}, std::byte{0}, std::byte{1},
                                           std::byte{kUpdateNotRequested}};
    if (!sealing_.seal(ContentType::handshake, message, out) || !sealing_.advance()) return 0;
    update = kKeyUpdateRecord;
    answer_due_ = false;
  }
  if (!sealing_.seal(ContentType::application_data, content, out + update)) return 0;
  return update + content.size() + kRecordOverhead;
}

std::size_t RecordLayer::write_alert(AlertCode code, std::byte* out) {
  constexpr std::byte kWarning{1};
  constexpr std::byte kFatal{2};
  const std::array<std::byte, 2> alert{code == AlertCode::close_notify ? kWarning : kFatal,
                                       static_cast<std::byte>(code)};
  return sealing_.seal(ContentType::alert, alert, out) ? kAlertRecord : 0;
}

}  // namespace tlsproxy::tls
