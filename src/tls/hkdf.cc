// The functions of openssl/sha.h are deprecated in favour of EVP_Digest*, which is what costs so much.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "tls/hkdf.h"

#include <openssl/sha.h>
#include <string.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace tlsproxy::tls {
namespace {

// A hash's state after a key is as good as the key: it goes with its owner.
struct Sha256 {
  static constexpr std::size_t kSize = 32;
  static constexpr std::size_t kBlock = 64;

  Sha256() { SHA256_Init(&state_); }
  ~Sha256() { ::explicit_bzero(&state_, sizeof(state_)); }
  Sha256(const Sha256&) = default;
  Sha256& operator=(const Sha256&) = delete;

  void add(Bytes bytes) { SHA256_Update(&state_, bytes.data(), bytes.size()); }
  void finish(unsigned char* out) { SHA256_Final(out, &state_); }

 private:
  SHA256_CTX state_;
};

struct Sha384 {
  static constexpr std::size_t kSize = 48;
  static constexpr std::size_t kBlock = 128;

  Sha384() { SHA384_Init(&state_); }
  ~Sha384() { ::explicit_bzero(&state_, sizeof(state_)); }
  Sha384(const Sha384&) = default;
  Sha384& operator=(const Sha384&) = delete;

  void add(Bytes bytes) { SHA384_Update(&state_, bytes.data(), bytes.size()); }
  void finish(unsigned char* out) { SHA384_Final(out, &state_); }

 private:
  SHA512_CTX state_;
};

// A buffer for something secret.
template <std::size_t kSize>
struct Wiped {
  std::array<unsigned char, kSize> bytes;
  ~Wiped() { ::explicit_bzero(bytes.data(), bytes.size()); }
};

template <class H>
class Hmac {
 public:
  explicit Hmac(Bytes key) {
    Wiped<H::kBlock> pad;
    pad.bytes.fill(0);
    if (key.size() > H::kBlock) {
      H shortened;
      shortened.add(key);
      shortened.finish(pad.bytes.data());
    } else {
      std::copy(key.begin(), key.end(), pad.bytes.begin());
    }
    for (unsigned char& byte : pad.bytes) byte ^= 0x36;
    inner_.add(pad.bytes);
    for (unsigned char& byte : pad.bytes) byte ^= 0x36 ^ 0x5c;
    outer_.add(pad.bytes);
  }

  void add(Bytes bytes) { inner_.add(bytes); }

  // Once, to `out` of the hash's size.
  void finish(unsigned char* out) {
    Wiped<H::kSize> hashed;
    inner_.finish(hashed.bytes.data());
    outer_.add(hashed.bytes);
    outer_.finish(out);
  }

 private:
  H inner_;
  H outer_;
};

template <class H>
void extract(Bytes salt, Bytes input, Room out) {
  Hmac<H> hmac(salt);
  hmac.add(input);
  hmac.finish(out.data());
}

template <class H>
bool expand(Bytes secret, Bytes info, Room out) {
  if (out.size() > 255 * H::kSize) return false;
  const Hmac<H> keyed(secret);
  Wiped<H::kSize> part;
  unsigned char number = 0;
  while (!out.empty()) {
    Hmac<H> hmac = keyed;
    if (number > 0) hmac.add(part.bytes);
    hmac.add(info);
    ++number;
    hmac.add({&number, 1});
    hmac.finish(part.bytes.data());
    const std::size_t size = std::min(out.size(), H::kSize);
    std::copy_n(part.bytes.begin(), size, out.begin());
    out = out.subspan(size);
  }
  return true;
}

}  // namespace

void hkdf_extract(Hash hash, Bytes salt, Bytes input, Room out) {
  TLSPROXY_CHECK(out.size() == size_of(hash), "a secret is as long as its hash");
  if (hash == Hash::sha256) return extract<Sha256>(salt, input, out);
  return extract<Sha384>(salt, input, out);
}

bool hkdf_expand(Hash hash, Bytes secret, Bytes info, Room out) {
  return hash == Hash::sha256 ? expand<Sha256>(secret, info, out) : expand<Sha384>(secret, info, out);
}

bool hkdf_expand_label(Hash hash, Bytes secret, Label label, Bytes context, Room out) {
  const std::size_t label_size = label.prefix.size() + label.name.size();
  if (out.size() > 0xffff || label_size > 0xff || context.size() > 0xff) return false;
  // struct HkdfLabel, RFC 8446, 7.1.
  std::array<unsigned char, 2 + 1 + 255 + 1 + 255> info;
  auto* at = info.begin();
  *at++ = static_cast<unsigned char>(out.size() >> 8);
  *at++ = static_cast<unsigned char>(out.size());
  *at++ = static_cast<unsigned char>(label_size);
  at = std::copy(label.prefix.begin(), label.prefix.end(), at);
  at = std::copy(label.name.begin(), label.name.end(), at);
  *at++ = static_cast<unsigned char>(context.size());
  at = std::copy(context.begin(), context.end(), at);
  return hkdf_expand(hash, secret, {info.begin(), at}, out);
}

bool hkdf_next_secret(Hash hash, Bytes previous, Label derived, Bytes input, Room out) {
  if (previous.data() == nullptr) {
    hkdf_extract(hash, {}, input, out);
    return true;
  }
  const std::size_t size = size_of(hash);
  std::array<unsigned char, kLargestHash> no_messages;
  if (hash == Hash::sha256) {
    Sha256().finish(no_messages.data());
  } else {
    Sha384().finish(no_messages.data());
  }
  Wiped<kLargestHash> salt;
  const Room salt_room(salt.bytes.data(), size);
  if (!hkdf_expand_label(hash, previous, derived, {no_messages.data(), size}, salt_room)) return false;
  hkdf_extract(hash, salt_room, input, out);
  return true;
}

}  // namespace tlsproxy::tls
