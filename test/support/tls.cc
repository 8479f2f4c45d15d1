#include "support/tls.h"

#include <openssl/pem.h>

#include <stdexcept>

#include "support/sockets.h"
#include "tls/provider.h"

namespace tlsproxy::support {

tls::SslCtxPtr server_context() {
  static const std::string pem = tls::make_self_signed("localhost").value();
  tls::SslCtxPtr context(SSL_CTX_new_ex(nullptr, tls::own_algorithms(), TLS_server_method()));
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  if (SSL_CTX_use_certificate(context.get(), certificate) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key) != 1) {
    throw std::runtime_error("a made certificate is usable");
  }
  X509_free(certificate);
  EVP_PKEY_free(key);
  BIO_free(bio);
  tls::Transport::watch_names(context.get());
  SSL_CTX_set_num_tickets(context.get(), 1);
  return context;
}

tls::SslCtxPtr client_context() {
  tls::SslCtxPtr context(SSL_CTX_new_ex(nullptr, tls::own_algorithms(), TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  return context;
}

TlsPair::TlsPair(buffer::BlockPool& pool, bool do_handshake, bool settle) : server(pool), client(pool) {
  auto [one, other] = connected_pair();
  server.socket.adopt(std::move(one));
  client.socket.adopt(std::move(other));
  if (!server.transport.accept(server_ctx.get(), {}, "localhost") ||
      !client.transport.connect(client_ctx.get(), "localhost")) {
    throw std::runtime_error("OpenSSL has memory");
  }
  if (do_handshake && !shake_hands()) throw std::runtime_error("a handshake over a socket pair completes");
  if (settle) {
    server.transport.settle();
    client.transport.settle();
  }
}

bool TlsPair::shake_hands() {
  bool server_done = false;
  bool client_done = false;
  for (int round = 0; round < 2000 && !(server_done && client_done); ++round) {
    server.socket.note(true, true, false);
    client.socket.note(true, true, false);
    if (!client_done) client_done = client.transport.handshake().ok();
    if (!server_done) server_done = server.transport.handshake().ok();
    static_cast<void>(client.transport.flush());
    static_cast<void>(server.transport.flush());
  }
  return server_done && client_done;
}

}  // namespace tlsproxy::support
