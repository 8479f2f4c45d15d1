// Reading PEM text (RFC 7468): certificates, revocation lists, private keys and their passphrases.
//
// Text in, objects out; no file is opened here and nobody is ever asked for a passphrase. Blocks of
// another kind are skipped, so one file may hold a chain and its key. Errors are half sentences that
// the caller puts a file name before. OpenSSL's error queue is left empty.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {

// All certificates, in their order; an error when there is none or one is malformed.
base::Result<std::vector<X509Ptr>> read_certificates(std::string_view pem);

// All revocation lists; an error when there is none or one is malformed.
base::Result<std::vector<CrlPtr>> read_crls(std::string_view pem);

// The first private key, of any type and either form (PKCS #8 or traditional). An encrypted one is
// tried with each passphrase in turn.
base::Result<KeyPtr> read_private_key(std::string_view pem, const std::vector<std::string>& passphrases);

// One passphrase a line, LF or CRLF; the last line may lack its end, empty lines are skipped.
std::vector<std::string> read_passphrases(std::string_view text);

}  // namespace tlsproxy::tls
