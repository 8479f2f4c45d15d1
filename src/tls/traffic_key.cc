#include "tls/traffic_key.h"

#include <openssl/crypto.h>
#include <openssl/err.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace tlsproxy::tls {
namespace {

constexpr std::uint64_t kGcmRecords = std::uint64_t{1} << 24U;
constexpr std::uint64_t kChachaRecords = std::uint64_t{1} << 62U;  // no limit that is reached

constexpr std::size_t kCipherBlock = 64;  // of ChaCha20; AES has 16
constexpr std::size_t kWorthSplitting = 4096;

constexpr std::array<Suite, 3> kSuites{{
    {0x1301, "AES-128-GCM", Hash::sha256, 16, kGcmRecords},
    {0x1302, "AES-256-GCM", Hash::sha384, 32, kGcmRecords},
    {0x1303, "ChaCha20-Poly1305", Hash::sha256, 32, kChachaRecords},
}};

// Fetched once: OpenSSL would look each up by its name again and again. Null where it has none.
const EVP_CIPHER* fetched(std::uint16_t id) {
  using Cipher = std::unique_ptr<EVP_CIPHER, FreedBy<EVP_CIPHER_free>>;
  static const auto all = [] {
    std::array<Cipher, kSuites.size()> ciphers;
    std::transform(kSuites.begin(), kSuites.end(), ciphers.begin(), [](const Suite& suite) {
      return Cipher(EVP_CIPHER_fetch(nullptr, suite.cipher, nullptr));
    });
    return ciphers;
  }();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (kSuites[i].id == id) return all[i].get();
  }
  return nullptr;
}

unsigned char* uchars(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

const unsigned char* uchars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

int as_int(std::size_t size) {
  return static_cast<int>(size);
}

Bytes uchars(std::span<const std::byte> bytes) {
  return {uchars(bytes.data()), bytes.size()};
}

Bytes uchars(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()), text.size()};
}

// HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
void expand_label(Hash hash, const Secret& secret, std::string_view name, Room out) {
  const bool fits =
      hkdf_expand_label(hash, uchars(secret.bytes()), {uchars("tls13 "), uchars(name)}, {}, out);
  TLSPROXY_CHECK(fits, "a key is no longer than what can be derived");
}

}  // namespace

const Suite* find_suite(std::uint16_t id) {
  const auto* found =
      std::find_if(kSuites.begin(), kSuites.end(), [id](const Suite& s) { return s.id == id; });
  return found == kSuites.end() || fetched(id) == nullptr ? nullptr : found;
}

Secret::Secret(std::span<const std::byte> bytes) : size_(static_cast<std::uint8_t>(bytes.size())) {
  TLSPROXY_CHECK(bytes.size() <= kLargestHash, "a traffic secret is as long as a digest");
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

Secret::~Secret() {
  OPENSSL_cleanse(bytes_.data(), size_);
}

bool TrafficKey::install(const Secret& secret, std::uint64_t sequence) {
  std::array<unsigned char, 32> key{};
  secret_ = secret;
  sequence_ = sequence;
  expand_label(suite_->hash, secret_, "key", std::span(key).first(suite_->key_size));
  expand_label(suite_->hash, secret_, "iv", iv_);
  if (!cipher_) cipher_.reset(EVP_CIPHER_CTX_new());
  const bool done = cipher_ && EVP_CipherInit_ex2(cipher_.get(), fetched(suite_->id), key.data(), iv_.data(),
                                                  use_ == Use::seal ? 1 : 0, nullptr) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  if (!done) ERR_clear_error();
  return done;
}

bool TrafficKey::advance() {
  std::array<std::byte, kLargestHash> next{};
  const auto used = std::span(next).first(size_of(suite_->hash));
  expand_label(suite_->hash, secret_, "traffic upd", {uchars(used.data()), used.size()});
  const bool done = install(Secret(used));
  OPENSSL_cleanse(next.data(), next.size());
  return done;
}

// RFC 8446, 5.3: the IV, its last eight bytes combined with the record's number.
TrafficKey::Nonce TrafficKey::next_nonce() {
  Nonce nonce = iv_;
  for (std::size_t i = 0; i < 8; ++i) {
    nonce[nonce.size() - 1 - i] ^= static_cast<unsigned char>(sequence_ >> (8 * i));
  }
  ++sequence_;
  return nonce;
}

bool TrafficKey::seal(ContentType type, std::span<const std::byte> content, std::byte* out) {
  TLSPROXY_DCHECK(use_ == Use::seal, "a key is for one use");
  const std::size_t payload = content.size() + 1 + kRecordTag;
  const std::array<unsigned char, kRecordHeader> header{
      static_cast<unsigned char>(ContentType::application_data), 3, 3,
      static_cast<unsigned char>(payload >> 8U), static_cast<unsigned char>(payload)};
  std::memcpy(out, header.data(), header.size());
  const Nonce nonce = next_nonce();
  EVP_CIPHER_CTX* cipher = cipher_.get();
  int done = 0;
  if (EVP_EncryptInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data()) != 1) return false;
  if (EVP_EncryptUpdate(cipher, nullptr, &done, header.data(), as_int(header.size())) != 1) return false;

  // Whole blocks of a large content are encrypted from where it is. A small one, or the rest, is copied, so
  // that the type can stand behind it and one call encrypts both.
  unsigned char* place = uchars(out) + kRecordHeader;
  const std::size_t apart =
      content.size() < kWorthSplitting ? 0 : content.size() / kCipherBlock * kCipherBlock;
  if (apart > 0 && EVP_EncryptUpdate(cipher, place, &done, uchars(content.data()), as_int(apart)) != 1)
    return false;
  const std::size_t rest = content.size() - apart;
  place += apart;
  if (rest > 0) std::memcpy(place, content.data() + apart, rest);
  place[rest] = static_cast<unsigned char>(type);
  if (EVP_EncryptUpdate(cipher, place, &done, place, as_int(rest + 1)) != 1) return false;
  place += rest + 1;
  if (EVP_EncryptFinal_ex(cipher, place, &done) != 1) return false;
  return EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, kRecordTag, place) == 1;
}

std::optional<TrafficKey::Opened> TrafficKey::open(std::span<std::byte> record, std::span<std::byte> room) {
  TLSPROXY_DCHECK(use_ == Use::open, "a key is for one use");
  if (record.size() < kRecordHeader + 1 + kRecordTag) return std::nullopt;
  const std::span<std::byte> inner =
      record.subspan(kRecordHeader, record.size() - kRecordHeader - kRecordTag);
  const std::size_t direct = std::min(inner.size(), room.size());
  const Nonce nonce = next_nonce();
  EVP_CIPHER_CTX* cipher = cipher_.get();
  int done = 0;
  if (EVP_DecryptInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data()) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, kRecordTag, inner.data() + inner.size()) != 1 ||
      EVP_DecryptUpdate(cipher, nullptr, &done, uchars(record.data()), kRecordHeader) != 1) {
    return std::nullopt;
  }
  if (direct > 0 &&
      EVP_DecryptUpdate(cipher, uchars(room.data()), &done, uchars(inner.data()), as_int(direct)) != 1) {
    return std::nullopt;
  }
  unsigned char* rest = uchars(inner.data() + direct);
  if (direct < inner.size() &&
      EVP_DecryptUpdate(cipher, rest, &done, rest, as_int(inner.size() - direct)) != 1) {
    return std::nullopt;
  }
  unsigned char none = 0;
  if (EVP_DecryptFinal_ex(cipher, &none, &done) != 1) return std::nullopt;

  // The type is the last byte that is not zero.
  std::size_t size = inner.size();
  const auto at = [&](std::size_t i) { return i < direct ? room[i] : inner[i]; };
  while (size > 0 && at(size - 1) == std::byte{0}) --size;
  if (size == 0) return Opened{ContentType{}, 0};
  return Opened{static_cast<ContentType>(at(size - 1)), size - 1};
}

}  // namespace tlsproxy::tls
