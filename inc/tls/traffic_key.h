// TrafficKey: what protects the records of one direction under TLS 1.3 (RFC 8446, 5.2, 5.3, 7.2, 7.3).
//
// A record on the wire, and what becomes of it:
//
//   | 23 | 3 3 | length | encrypted: content, content type, zeros as padding | tag |
//     header, 5 bytes     `length` bytes
//
// seal() and open() touch every byte once: they encrypt from where the plaintext is to where the record
// goes, and decrypt to where the plaintext is wanted.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tls/hkdf.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {

constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kRecordTag = 16;
constexpr std::size_t kLargestPlaintext = 16384;                  // of a record, RFC 8446, 5.1
constexpr std::size_t kLargestPayload = kLargestPlaintext + 256;  // `length`, RFC 8446, 5.2
constexpr std::size_t kRecordOverhead = kRecordHeader + 1 + kRecordTag;

// RFC 8446, 5.1.
enum class ContentType : std::uint8_t { change_cipher_spec = 20, alert, handshake, application_data };

// A cipher suite that is known here (RFC 8446, B.4).
struct Suite {
  std::uint16_t id;
  const char* cipher;  // OpenSSL's name
  Hash hash;           // of the key schedule; a secret is as long as its result
  std::size_t key_size;
  // After so many records the sender changes its key (RFC 8446, 5.5: 2^24.5 full ones for AES-GCM).
  std::uint64_t records_per_key;
};

// Null for a suite that is not known: its connections stay with OpenSSL's own record layer.
const Suite* find_suite(std::uint16_t id);

// A traffic secret; erased when it goes.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::span<const std::byte> bytes);  // at most kLargestHash
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  [[nodiscard]] std::span<const std::byte> bytes() const { return std::span(bytes_).first(size_); }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  std::array<std::byte, kLargestHash> bytes_{};
  std::uint8_t size_ = 0;
};

class TrafficKey {
 public:
  enum class Use : std::uint8_t { seal, open };

  // `suite` must outlive it.
  TrafficKey(const Suite& suite, Use use) : suite_(&suite), use_(use) {}

  // Derives key and IV from `secret` (RFC 8446, 7.3) and counts records from `sequence`. False: OpenSSL has
  // no memory.
  [[nodiscard]] bool install(const Secret& secret, std::uint64_t sequence = 0);

  // The next generation, after a KeyUpdate.
  [[nodiscard]] bool advance();

  // Makes a record of `content` at `out`, where content.size() + kRecordOverhead bytes fit; they do not
  // overlap. A content over kLargestPlaintext is refused by the peer. False when OpenSSL failed.
  [[nodiscard]] bool seal(ContentType type, std::span<const std::byte> content, std::byte* out);

  // What a record held. The first bytes of its content are in `room` as far as that reaches, the others in
  // the record's own memory, `kRecordHeader` plus their offset from its start.
  struct Opened {
    ContentType type;
    std::size_t size;
  };

  // Opens a whole record of application_data, header included, and overwrites it. Nothing when it is not
  // authentic; then `room` is worthless too. A content of zeros only, without a type, has type 0.
  [[nodiscard]] std::optional<Opened> open(std::span<std::byte> record, std::span<std::byte> room);

  [[nodiscard]] bool is_worn() const { return sequence_ >= suite_->records_per_key; }
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }

 private:
  using Nonce = std::array<unsigned char, 12>;
  [[nodiscard]] Nonce next_nonce();

  const Suite* suite_;
  std::unique_ptr<EVP_CIPHER_CTX, FreedBy<EVP_CIPHER_CTX_free>> cipher_;
  Secret secret_;
  Nonce iv_{};
  std::uint64_t sequence_ = 0;
  Use use_;
};

}  // namespace tlsproxy::tls
