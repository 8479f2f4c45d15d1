#include "tls/transport.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "tls/peer.h"

namespace tlsproxy::tls {
namespace {

using transport::IoResult;
using transport::IoStatus;

constexpr std::size_t kLargestRecord = 16384;  // plaintext bytes, RFC 8446, 5.1

}  // namespace

Transport::Transport(transport::Socket& socket, buffer::BlockPool& pool)
    : socket_(&socket), bio_(socket, pool) {}

Transport::~Transport() = default;

bool Transport::start(SSL_CTX* context) {
  ssl_.reset(SSL_new(context));
  BIO* bio = ssl_ ? bio_.make_bio() : nullptr;
  if (bio == nullptr) {
    ERR_clear_error();
    return false;
  }
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  SSL_set_info_callback(ssl_.get(), &Transport::on_info);
  return true;
}

bool Transport::accept(SSL_CTX* context, buffer::RelayBuffer&& received, std::string_view name) {
  bio_.replay(std::move(received));
  name_ = name;
  if (!start(context)) return false;
  SSL_set_accept_state(ssl_.get());
  return true;
}

bool Transport::connect(SSL_CTX* context, const std::string& name) {
  name_ = name;
  if (!start(context)) return false;
  SSL_set_connect_state(ssl_.get());
  return expect_name(ssl_.get(), name);
}

IoResult Transport::handshake() {
  for (;;) {
    ERR_clear_error();
    bio_.forget_last_read();
    const int done = SSL_do_handshake(ssl_.get());
    // The error queue is read before anything else can touch it.
    IoResult result = done == 1 ? IoResult::done() : classify(done);
    const IoResult flushed = bio_.flush();
    if (!flushed.ok() && !flushed.would_block() && !broken_) result = flushed;
    // A flight larger than the output block stopped in the middle: on with it while the socket takes it.
    if (result.would_block() && SSL_want_write(ssl_.get()) && flushed.ok() && !bio_.has_output()) {
      if (bio_.take_starved()) return result;
      continue;
    }
    if (result.ok()) cool();
    return result;
  }
}

IoResult Transport::classify(int returned) {
  const int error = SSL_get_error(ssl_.get(), returned);
  switch (error) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return IoResult::blocked();
    case SSL_ERROR_ZERO_RETURN:
      return {IoStatus::end, 0, 0};
    default:
      break;
  }
  broken_ = true;
  const unsigned long reason = ERR_peek_error();
  if (ERR_GET_LIB(reason) == ERR_LIB_SSL &&
      ERR_GET_REASON(reason) == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    no_certificate_ = true;
  }
  ERR_clear_error();
  // The socket knows better than OpenSSL, which reports a bare FIN as a protocol error since 3.0
  // (SSL_R_UNEXPECTED_EOF_WHILE_READING) and a reset as a system error with a stale errno.
  const IoResult socket_said = bio_.last_read();
  if (socket_said.status == IoStatus::end) return {IoStatus::truncated, 0, 0};
  if (!socket_said.ok() && !socket_said.would_block()) return socket_said;
  return {IoStatus::failed, 0, 0};
}

IoResult Transport::read(std::span<std::byte> room) {
  if (input_end_) return *input_end_;
  std::size_t total = 0;
  IoResult stopped = IoResult::blocked();
  bool drained = false;
  while (total < room.size()) {
    ERR_clear_error();
    bio_.forget_last_read();
    std::size_t got = 0;
    const int done = SSL_read_ex(ssl_.get(), room.data() + total, room.size() - total, &got);
    if (done == 1) {
      total += got;
      continue;
    }
    stopped = classify(done);
    drained = true;
    break;
  }
  // OpenSSL may have had something to say while reading: a KeyUpdate's answer, an alert.
  if (bio_.has_output()) static_cast<void>(bio_.flush());
  drained_ = drained && stopped.would_block();
  if (drained && !stopped.would_block()) input_end_ = stopped;
  if (drained_ && !bio_.reads_in_bulk()) {
    cool();
  } else {
    warm_ = true;
  }
  if (total > 0) return IoResult::moved(total);
  return stopped;
}

IoResult Transport::write(std::span<const std::byte> data) {
  if (broken_ || output_ended_) return {IoStatus::failed, 0, 0};
  if (const IoResult flushed = bio_.flush(); !flushed.ok()) return flushed;
  std::size_t fits = 0;
  if (!bio_.reserve(data.size(), fits)) return IoResult::blocked();
  std::size_t total = 0;
  while (total < fits) {
    const std::size_t size = std::min(kLargestRecord, fits - total);
    ERR_clear_error();
    std::size_t written = 0;
    const int done = SSL_write_ex(ssl_.get(), data.data() + total, size, &written);
    if (done != 1) {
      const IoResult failure = classify(done);
      broken_ = true;
      return failure.would_block() ? IoResult{IoStatus::failed, 0, 0} : failure;
    }
    total += written;
  }
  const IoResult flushed = bio_.flush();
  if (!flushed.ok() && !flushed.would_block()) return flushed;
  if (total <= buffer::BlockPool::kCapacities[0]) {
    if (!bio_.reads_in_bulk()) cool();
  } else {
    warm_ = true;
  }
  return IoResult::moved(total);
}

IoResult Transport::finish_output(bool orderly) {
  if (output_ended_) return IoResult::done();
  if (orderly && !notified_ && !broken_ && SSL_is_init_finished(ssl_.get())) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());  // queues our close_notify; the peer's is not waited for here
    ERR_clear_error();
  }
  notified_ = true;
  const IoResult flushed = bio_.flush();
  if (!flushed.ok()) return flushed;
  socket_->shutdown_write();
  bio_.drop_output_from_now();
  output_ended_ = true;
  return IoResult::done();
}

void Transport::cool() {
  // Refuses, harmlessly, while a record is half read.
  warm_ = ssl_ != nullptr && SSL_free_buffers(ssl_.get()) == 0;
}

void Transport::on_info(const SSL* ssl, int where, int value) {
  if ((where & SSL_CB_ALERT) == 0) return;
  const bool fatal = (value >> 8) == SSL3_AL_FATAL;
  if (!fatal) return;
  auto* me = static_cast<Transport*>(SSL_get_app_data(ssl));
  std::string description = base::to_lower(SSL_alert_desc_string_long(value));
  std::replace(description.begin(), description.end(), ' ', '_');
  me->alert_ = Alert{std::move(description), (where & SSL_CB_WRITE) != 0};
}

void Transport::watch_names(SSL_CTX* context) {
  // What the macro SSL_CTX_set_tlsext_servername_callback does, without its C cast.
  SSL_CTX_callback_ctrl(context, SSL_CTRL_SET_TLSEXT_SERVERNAME_CB,
                        reinterpret_cast<void (*)()>(&Transport::on_server_name));
}

int Transport::on_server_name(SSL* ssl, int* alert, void*) {
  auto* me = static_cast<Transport*>(SSL_get_app_data(ssl));
  if (me == nullptr) return SSL_TLSEXT_ERR_NOACK;
  const char* asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  std::string name = asked == nullptr ? "" : base::to_lower(asked);
  if (name.ends_with('.')) name.pop_back();
  if (name == me->name_) return name.empty() ? SSL_TLSEXT_ERR_NOACK : SSL_TLSEXT_ERR_OK;
  me->name_changed_ = true;
  *alert = SSL_AD_ILLEGAL_PARAMETER;
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

record::TlsFacts Transport::facts() const {
  record::TlsFacts facts;
  facts.version = SSL_get_version(ssl_.get());
  if (const SSL_CIPHER* cipher = SSL_get_current_cipher(ssl_.get())) {
    facts.cipher = SSL_CIPHER_standard_name(cipher);
  }
  if (const auto group = SSL_get_negotiated_group(ssl_.get()); group != NID_undef) {
    const char* name = SSL_group_to_name(ssl_.get(), static_cast<int>(group));
    if (name != nullptr) facts.group = name;
  }
  facts.resumed = SSL_session_reused(ssl_.get()) == 1;
  return facts;
}

std::string_view Transport::alpn() const {
  const unsigned char* name = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

std::string Transport::peer_subject() const {
  return tls::peer_subject(ssl_.get());
}

std::string Transport::verify_error() const {
  return no_certificate_ ? "no certificate" : tls::verify_error(ssl_.get());
}

}  // namespace tlsproxy::tls
