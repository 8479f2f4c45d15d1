// Facts about the peer of a TLS connection, and what a client demands of one.
#pragma once

#include <openssl/ssl.h>

#include <string>

namespace tlsproxy::tls {

// The subject of the peer's certificate in RFC 2253 form, UTF-8; empty when it showed none. A resumed
// session has the one of the handshake it goes back to.
std::string peer_subject(const SSL* ssl);

// Why the peer's certificate was rejected, in OpenSSL's words ("certificate revoked"); empty when it was
// not, or when none was needed.
std::string verify_error(const SSL* ssl);

// Before a client's handshake: the peer must prove `name` (a host name or an IP address in text, from
// ClientContext::expected_name), when the context verifies. A host name is also sent as SNI (RFC 6066, 3,
// forbids addresses there). An empty name demands and sends nothing. False when it cannot be used.
bool expect_name(SSL* ssl, const std::string& name);

}  // namespace tlsproxy::tls
