#include "support/handshake.h"

#include "tls/errors.h"

namespace tlsproxy::test {
namespace {

constexpr int kMostRounds = 50;

// One step of one side; whether it got somewhere new. In TLS 1.3 a client is done before the server has
// judged its certificate, so both read on after the handshake: that is where the alert shows.
bool step(SSL* ssl, bool& done, std::string& error) {
  if (!error.empty()) return false;
  tls::take_errors();
  const bool was_done = done;
  char byte = 0;
  const int result = done ? SSL_read(ssl, &byte, 1) : SSL_do_handshake(ssl);
  const int kind = SSL_get_error(ssl, result);
  if (!done && result == 1) done = true;
  if (kind != SSL_ERROR_NONE && kind != SSL_ERROR_WANT_READ && kind != SSL_ERROR_WANT_WRITE) {
    error = tls::take_errors();
    if (error.empty()) error = "closed";
    done = false;
  }
  return done != was_done || !error.empty();
}

}  // namespace

SslContextPtr make_client_context() {
  SslContextPtr context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  return context;
}

SslContextPtr make_server_context(const Issued& certificate) {
  SslContextPtr context(SSL_CTX_new(TLS_server_method()));
  SSL_CTX_use_certificate(context.get(), certificate.certificate.get());
  SSL_CTX_use_PrivateKey(context.get(), certificate.key.get());
  return context;
}

Handshake shake_hands(SSL_CTX* client, SSL_CTX* server, const std::function<void(SSL*)>& prepare) {
  Handshake handshake{SslPtr(SSL_new(client)), SslPtr(SSL_new(server))};
  BIO* client_end = nullptr;
  BIO* server_end = nullptr;
  BIO_new_bio_pair(&client_end, 1 << 20, &server_end, 1 << 20);
  SSL_set_bio(handshake.client.get(), client_end, client_end);
  SSL_set_bio(handshake.server.get(), server_end, server_end);
  SSL_set_connect_state(handshake.client.get());
  SSL_set_accept_state(handshake.server.get());
  if (prepare) prepare(handshake.client.get());
  for (int round = 0, quiet = 0; round < kMostRounds && quiet < 2; ++round) {
    const bool client_moved = step(handshake.client.get(), handshake.client_done, handshake.client_error);
    const bool server_moved = step(handshake.server.get(), handshake.server_done, handshake.server_error);
    const bool in_flight = BIO_pending(client_end) > 0 || BIO_pending(server_end) > 0;
    quiet = client_moved || server_moved || in_flight ? 0 : quiet + 1;
  }
  return handshake;
}

std::string peer_common_name(const SSL* ssl) {
  const X509* certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr) return {};
  char name[128] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
  return name;
}

}  // namespace tlsproxy::test
