#include "tls_client.h"

#include <openssl/bio.h>
#include <openssl/err.h>

namespace tlsproxy::load {
namespace {

constexpr std::size_t kAtOnce = std::size_t{64} * 1024;

tl::unexpected<base::Error> openssl_failure(const std::string& what) {
  const char* reason = ERR_reason_error_string(ERR_get_error());
  return base::failure(what + ": " + (reason != nullptr ? reason : "unknown reason"));
}

// OpenSSL hands over each session a server's ticket makes possible; the newest is the one to offer.
int keep_ticket(SSL* ssl, SSL_SESSION* session) {
  static_cast<SessionPtr*>(SSL_get_app_data(ssl))->reset(session);
  return 1;  // the session is ours now
}

// In 1.2 the groups are also the curves that a certificate may have (RFC 8422, 5.1.1), so P-256 has to be
// among them; the key exchange takes the first.
base::Status pin(SSL_CTX* context, const TlsOptions& options) {
  const int version = options.is_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION;
  std::string suite = options.is_1_3 ? "TLS_AES_128_GCM_SHA256" : "ECDHE+AESGCM";
  std::string group = options.is_1_3 ? "X25519" : "X25519:P-256";
  if (!options.suite.empty()) suite = options.suite;
  if (!options.group.empty()) group = options.group;

  SSL_CTX_set_min_proto_version(context, version);
  SSL_CTX_set_max_proto_version(context, version);
  const auto set_suite = options.is_1_3 ? SSL_CTX_set_ciphersuites : SSL_CTX_set_cipher_list;
  if (set_suite(context, suite.c_str()) != 1) return openssl_failure("--suite " + suite);
  if (SSL_CTX_set1_groups_list(context, group.c_str()) != 1) return openssl_failure("--group " + group);
  return {};
}

}  // namespace

base::Result<TlsClient> TlsClient::make(const TlsOptions& options) {
  ContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (!context) return openssl_failure("SSL_CTX_new");
  if (const auto pinned = pin(context.get(), options); !pinned) return tl::unexpected(pinned.error());

  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context.get(), options.takes_tickets
                                                    ? SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL
                                                    : SSL_SESS_CACHE_OFF);
  if (options.takes_tickets) SSL_CTX_sess_set_new_cb(context.get(), keep_ticket);
  if (options.reads_ahead) {
    SSL_CTX_set_read_ahead(context.get(), 1);
    SSL_CTX_set_default_read_buffer_len(context.get(), kAtOnce);
  } else {
    SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  }
  return TlsClient(options, std::move(context));
}

SslPtr TlsClient::open(int fd, SessionPtr& ticket) const {
  SslPtr ssl(SSL_new(context_.get()));
  BIO* socket = BIO_new_socket(fd, BIO_NOCLOSE);
  if (!ssl || socket == nullptr) {
    BIO_free(socket);
    return nullptr;
  }
  BIO* writer = socket;
  if (options_.reads_ahead) {
    // OpenSSL makes a write of each record; a buffer before the socket makes one of four.
    BIO* buffer = BIO_new(BIO_f_buffer());
    if (buffer == nullptr || BIO_set_write_buffer_size(buffer, static_cast<long>(kAtOnce)) != 1) {
      BIO_free(buffer);
      BIO_free(socket);
      return nullptr;
    }
    BIO_up_ref(socket);
    writer = BIO_push(buffer, socket);
  }
  SSL_set_bio(ssl.get(), socket, writer);
  SSL_set_app_data(ssl.get(), &ticket);
  if (ticket) SSL_set_session(ssl.get(), ticket.get());
  if (!options_.server_name.empty()) {
    // What SSL_set_tlsext_host_name() stands for, without its C cast.
    SSL_ctrl(ssl.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
             const_cast<char*>(options_.server_name.c_str()));
  }
  SSL_set_connect_state(ssl.get());
  return ssl;
}

TlsFacts facts_of(SSL* ssl) {
  const char* group = SSL_group_to_name(ssl, static_cast<int>(SSL_get_negotiated_group(ssl)));
  return {SSL_get_version(ssl), SSL_get_cipher_name(ssl), group != nullptr ? group : ""};
}

}  // namespace tlsproxy::load
