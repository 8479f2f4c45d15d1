// Which certificates of one policy serve which name.
//
//   certificates:  1 RSA {a, b}    2 ECDSA {a}    3 RSA {b, *.c}
//   names:         a -> {1, 2}     b -> {1}, 3 comes second with its kind of key     *.c -> {3}
//   no name, or another one -> {1}
//
// A group holds one certificate per key type; the handshake takes what the client's algorithms allow.
// A name that is exactly in some certificate is served by those alone: a wildcard certificate with
// another key type is not added, since its names were not what the operator wrote for this host.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tls/identity.h"

namespace tlsproxy::tls {

using CertificateGroup = std::vector<const Identity*>;

struct CertificateGroups {
  std::map<std::string, CertificateGroup> by_name;  // exact and "*.suffix"

  // The first certificate and, for each other key type, the first one that covers all of its names.
  CertificateGroup fallback;

  // Certificates that some name would get, had not an earlier one the same key type.
  struct Shadow {
    const Identity* later;
    const Identity* first;
    std::vector<std::string> names;
  };
  std::vector<Shadow> shadows;

  // Certificates in no group at all that are not shadowed: they name no host.
  std::vector<const Identity*> unreachable;
};

// In the order of the configuration, which decides.
CertificateGroups group_by_name(const std::vector<const Identity*>& identities);

// "*." and what follows the first label of `name`, the only wildcard that covers it; empty when there
// is none.
std::string wildcard_for(std::string_view name);

}  // namespace tlsproxy::tls
