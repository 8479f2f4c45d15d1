#include "wire/client_hello.h"

#include <algorithm>
#include <bitset>

#include "base/strings.h"

namespace tlsproxy::wire {
namespace {

// RFC 8446, 5.1 and B.1.
constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kLargestFragment = 1U << 14;
constexpr std::byte kHandshakeRecord{22};
constexpr std::byte kMajorVersion{3};

// RFC 8446, 4 and 4.2.
constexpr std::size_t kMessageHeader = 4;
constexpr std::byte kClientHello{1};
constexpr std::uint32_t kServerName = 0;
constexpr std::uint32_t kAlpn = 16;
constexpr std::uint32_t kSupportedVersions = 43;
constexpr std::uint32_t kTls13 = 0x0304;

// Reads fields one after the other. A field that reaches beyond the end reads as zero or empty and
// leaves the reader failed for good, so that one look at the end is enough.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::span<const std::byte> take(std::size_t count) {
    if (count > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  // An unsigned number of `width` bytes, most significant first.
  std::uint32_t number(std::size_t width) {
    std::uint32_t value = 0;
    for (const std::byte byte : take(width)) value = (value << 8) | std::to_integer<std::uint32_t>(byte);
    return value;
  }

  // A vector: its length in `width` bytes, then its content (RFC 8446, 3.4).
  Reader vector(std::size_t width) { return Reader(take(number(width))); }

  [[nodiscard]] std::string text() const {
    std::string text(rest_.size(), '\0');
    std::transform(rest_.begin(), rest_.end(), text.begin(),
                   [](std::byte byte) { return static_cast<char>(byte); });
    return text;
  }

  [[nodiscard]] std::size_t size() const { return rest_.size(); }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool more() const { return !rest_.empty(); }
  [[nodiscard]] bool complete() const { return !failed_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool failed_ = false;
};

bool is_name_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > 0x20 && byte != 0x7f;
}

bool read_server_name(Reader extension, ClientHello& hello) {
  Reader list = extension.vector(2);
  const std::uint32_t type = list.number(1);
  const Reader host_name = list.vector(2);
  if (!extension.complete() || !list.complete() || type != 0) return false;
  std::string name = host_name.text();
  if (name.size() > 255 || !std::all_of(name.begin(), name.end(), is_name_byte)) return false;
  if (name.ends_with('.')) name.pop_back();
  if (name.empty()) return false;
  hello.sni = base::to_lower(name);
  return true;
}

bool read_alpn(Reader extension, ClientHello& hello) {
  Reader list = extension.vector(2);
  if (!extension.complete() || !list.more()) return false;
  while (list.more()) {
    const Reader protocol = list.vector(1);
    if (list.failed() || !protocol.more()) return false;
    hello.alpn.push_back(protocol.text());
  }
  return true;
}

bool read_supported_versions(Reader extension, ClientHello& hello) {
  Reader list = extension.vector(1);
  if (!extension.complete() || !list.more()) return false;
  while (list.more()) {
    if (list.number(2) == kTls13) hello.tls1_3 = true;
  }
  return list.complete();
}

bool read_extensions(Reader extensions, ClientHello& hello) {
  std::bitset<65536> seen;
  while (extensions.more()) {
    const std::uint32_t type = extensions.number(2);
    const Reader content = extensions.vector(2);
    if (extensions.failed() || seen.test(type)) return false;
    seen.set(type);
    if (type == kServerName && !read_server_name(content, hello)) return false;
    if (type == kAlpn && !read_alpn(content, hello)) return false;
    if (type == kSupportedVersions && !read_supported_versions(content, hello)) return false;
  }
  return true;
}

// The message without its header.
bool read_message(Reader message, ClientHello& hello) {
  message.take(2 + 32);  // legacy_version, random
  const Reader session_id = message.vector(1);
  const Reader cipher_suites = message.vector(2);
  const Reader compression_methods = message.vector(1);
  if (message.failed() || session_id.size() > 32) return false;
  if (cipher_suites.size() < 2 || cipher_suites.size() % 2 != 0 || !compression_methods.more()) return false;
  if (!message.more()) return true;  // no extensions at all (RFC 5246, 7.4.1.2)
  const Reader extensions = message.vector(2);
  return message.complete() && read_extensions(extensions, hello);
}

ClientHello verdict(HelloVerdict verdict) {
  ClientHello hello;
  hello.verdict = verdict;
  return hello;
}

ClientHello complete(std::span<const std::byte> message) {
  ClientHello hello;
  if (!read_message(Reader(message), hello)) return verdict(HelloVerdict::malformed);
  hello.verdict = HelloVerdict::hello;
  return hello;
}

}  // namespace

std::string_view to_string(HelloVerdict verdict) {
  switch (verdict) {
    case HelloVerdict::need_more:
      return "need_more";
    case HelloVerdict::hello:
      return "hello";
    case HelloVerdict::not_tls:
      return "not_tls";
    case HelloVerdict::malformed:
      return "malformed";
    case HelloVerdict::too_large:
      return "too_large";
  }
  return {};
}

// Goes through the records in their order and returns at the first byte that decides. So a longer window
// cannot change a verdict: it is found at the same byte. For the same reason nothing beyond `limit` is
// looked at.
ClientHello parse_client_hello(std::span<const std::byte> window, std::size_t limit) {
  const auto bytes = window.first(std::min(window.size(), limit));
  const auto starved = bytes.size() < limit ? HelloVerdict::need_more : HelloVerdict::too_large;
  std::vector<std::byte> message;  // the fragments so far, headers of records left out

  for (std::size_t at = 0;;) {
    const auto wrong_record = at == 0 ? HelloVerdict::not_tls : HelloVerdict::malformed;
    const auto header = bytes.subspan(at, std::min(kRecordHeader, bytes.size() - at));
    if (!header.empty() && header[0] != kHandshakeRecord) return verdict(wrong_record);
    if (header.size() > 1 && header[1] != kMajorVersion) return verdict(wrong_record);
    if (header.size() < kRecordHeader) return verdict(starved);
    const std::size_t length = Reader(header.subspan(3)).number(2);
    if (length == 0 || length > kLargestFragment) return verdict(HelloVerdict::malformed);
    at += kRecordHeader;

    const auto fragment = bytes.subspan(at, std::min(length, bytes.size() - at));
    message.insert(message.end(), fragment.begin(), fragment.end());
    at += fragment.size();
    if (!message.empty() && message[0] != kClientHello) return verdict(HelloVerdict::malformed);
    if (message.size() >= kMessageHeader) {
      const std::size_t total = kMessageHeader + Reader(std::span(message).subspan(1)).number(3);
      if (message.size() >= total) {
        return complete(std::span(message).subspan(kMessageHeader, total - kMessageHeader));
      }
      if (at + (total - message.size()) > limit) return verdict(HelloVerdict::too_large);
    }
    if (fragment.size() < length) return verdict(starved);
  }
}

}  // namespace tlsproxy::wire
