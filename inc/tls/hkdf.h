// The key derivation of TLS 1.3: HMAC (RFC 2104), HKDF (RFC 5869) and the labels of RFC 8446, 7.1.
//
// One handshake derives some twenty secrets of 12 to 48 bytes. OpenSSL 3.0 does each with a dozen
// allocations and as many look-ups of algorithms by name, around five blocks of hashing; here it is the
// hashing. The hash functions are libcrypto's, with what they use of the processor. Nothing is allocated,
// time depends on lengths alone, and what was secret on the stack is wiped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tlsproxy::tls {

// Those of the cipher suites of TLS 1.3.
enum class Hash : std::uint8_t { sha256, sha384 };

constexpr std::size_t kLargestHash = 48;  // bytes

constexpr std::size_t size_of(Hash hash) {
  return hash == Hash::sha256 ? 32 : 48;
}

using Bytes = std::span<const unsigned char>;
using Room = std::span<unsigned char>;

// HKDF-Extract, which is HMAC with `salt` as its key. Fills `out`, of the hash's size.
void hkdf_extract(Hash hash, Bytes salt, Bytes input, Room out);

// HKDF-Expand: fills `out`; false, and nothing done, when that is more than 255 hashes.
bool hkdf_expand(Hash hash, Bytes secret, Bytes info, Room out);

// What a secret is for: "tls13 " and "c hs traffic", which are sent to the hash as one.
struct Label {
  Bytes prefix;
  Bytes name;
};

// HKDF-Expand-Label; false when a part is longer than its length field can say, or as hkdf_expand.
bool hkdf_expand_label(Hash hash, Bytes secret, Label label, Bytes context, Room out);

// A step of the key schedule's main line: HKDF-Extract of `input` with what is derived from `previous`
// under `derived` and no messages; without a previous secret (null data) with nothing. Fills `out`, of the
// hash's size. False as hkdf_expand_label.
bool hkdf_next_secret(Hash hash, Bytes previous, Label derived, Bytes input, Room out);

}  // namespace tlsproxy::tls
