// Algorithms of our own for OpenSSL: a provider (provider(7)) within the program.
//
//   TLS13-KDF    tls/hkdf.h instead of OpenSSL's own, under SHA-256 and SHA-384
//
// A context takes them by the property query it is made with:
//
//   SSL_CTX_new_ex(nullptr, own_algorithms(), TLS_server_method())
//
// The query prefers, it does not demand: everything else comes from whoever has it, and where the system's
// configuration of OpenSSL demands properties of its own, such as fips=yes, ours are not taken.
#pragma once

#include "tls/traffic_key.h"

namespace tlsproxy::tls {

// The property query. The first call makes the provider known to OpenSSL.
const char* own_algorithms();

// The secrets that protect application data (RFC 8446, 7.1): c_ and s_ap_traffic_secret_0.
struct TrafficSecrets {
  Secret client;
  Secret server;
};

// As long as it lives, what this thread's handshake derives of them is noted in `secrets`. Nothing, where
// another provider's TLS13-KDF is used. One at a time.
class NoteTrafficSecrets {
 public:
  explicit NoteTrafficSecrets(TrafficSecrets& secrets);
  ~NoteTrafficSecrets();
  NoteTrafficSecrets(const NoteTrafficSecrets&) = delete;
  NoteTrafficSecrets& operator=(const NoteTrafficSecrets&) = delete;
};

}  // namespace tlsproxy::tls
