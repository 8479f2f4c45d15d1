#include "tls/transport.h"

#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "tls/peer.h"

namespace tlsproxy::tls {
namespace {

using transport::IoResult;
using transport::IoStatus;

// SSL_get_error() wants an empty queue before each call. It nearly always is, and looking costs a fraction
// of what clearing all its entries does.
void empty_error_queue() {
  if (ERR_peek_error() != 0) ERR_clear_error();
}

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
  SSL_set_msg_callback(ssl_.get(), &Transport::on_message);
  SSL_set_msg_callback_arg(ssl_.get(), this);
  return true;
}

bool Transport::accept(SSL_CTX* context, buffer::RelayBuffer&& received, std::string_view name) {
  bio_.replay(std::move(received));
  greeting_ = std::make_unique<Greeting>();
  greeting_->name = name;
  if (!start(context)) return false;
  SSL_set_accept_state(ssl_.get());
  return true;
}

bool Transport::connect(SSL_CTX* context, const std::string& name) {
  greeting_ = std::make_unique<Greeting>();
  greeting_->name = name;
  if (!start(context)) return false;
  SSL_set_connect_state(ssl_.get());
  return expect_name(ssl_.get(), name);
}

IoResult Transport::handshake() {
  for (;;) {
    empty_error_queue();
    bio_.forget_last_read();
    greeting_->records_written = 0;
    const NoteTrafficSecrets noting(greeting_->secrets);
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
    if (greeting_) greeting_->no_certificate = true;
  }
  ERR_clear_error();
  // The socket knows better than OpenSSL, which reports a bare FIN as a protocol error since 3.0
  // (SSL_R_UNEXPECTED_EOF_WHILE_READING) and a reset as a system error with a stale errno.
  const IoResult socket_said = bio_.last_read();
  if (socket_said.status == IoStatus::end) return {IoStatus::truncated, 0, 0};
  if (!socket_said.ok() && !socket_said.would_block()) return socket_said;
  return {IoStatus::failed, 0, 0};
}

void Transport::settle() {
  records_ = take_over();
  if (records_) {
    told_ = {facts(), std::string(alpn()), peer_subject()};
    // Freed without this, the session would count as broken off, and not be resumed.
    SSL_set_shutdown(ssl_.get(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    ssl_.reset();
    warm_ = false;
  } else {
    SSL_set_msg_callback(ssl_.get(), nullptr);
  }
  greeting_.reset();
}

// Null where OpenSSL has to go on: another version or suite, or bytes that it has read already.
std::unique_ptr<RecordLayer> Transport::take_over() const {
  const SSL_CIPHER* cipher = SSL_get_current_cipher(ssl_.get());
  if (SSL_version(ssl_.get()) != TLS1_3_VERSION || cipher == nullptr || broken_) return nullptr;
  const Suite* suite = find_suite(SSL_CIPHER_get_protocol_id(cipher));
  const bool known = suite != nullptr && greeting_->secrets.client.bytes().size() == size_of(suite->hash) &&
                     greeting_->secrets.server.bytes().size() == size_of(suite->hash);
  if (!known || SSL_has_pending(ssl_.get()) != 0 || !bio_.holds_any_record()) return nullptr;
  const bool serves = SSL_is_server(ssl_.get()) != 0;
  auto records =
      std::make_unique<RecordLayer>(*suite, serves ? RecordLayer::Role::server : RecordLayer::Role::client);
  const Secret& ours = serves ? greeting_->secrets.server : greeting_->secrets.client;
  const Secret& theirs = serves ? greeting_->secrets.client : greeting_->secrets.server;
  // The call that completes a server's handshake begins with the client's Finished, so what it writes (the
  // session tickets) is all there is under the traffic key; a client's writes nothing under it.
  return records->take_over(ours, theirs, serves ? greeting_->records_written : 0) ? std::move(records)
                                                                                   : nullptr;
}

bool Transport::has_bytes_at_hand() const {
  if (records_) return records_->can_read(bio_.input());
  return bio_.has_input() || SSL_pending(ssl_.get()) > 0;
}

IoResult Transport::read(std::span<std::byte> room) {
  if (input_end_) return *input_end_;
  if (records_) return read_records(room);
  std::size_t total = 0;
  IoResult stopped = IoResult::blocked();
  bool drained = false;
  while (total < room.size() && (total == 0 || may_hold_more())) {
    empty_error_queue();
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
  if (drained && !stopped.would_block()) input_end_ = stopped;
  drained_ = !input_end_ && (drained || !may_hold_more());
  if (drained_ && !bio_.reads_in_bulk()) {
    cool();
  } else {
    warm_ = true;
  }
  if (total > 0) return IoResult::moved(total);
  return stopped;
}

// Whether another SSL_read could give anything: what is known to be drained need not be asked.
bool Transport::may_hold_more() const {
  return has_bytes_at_hand() || socket_->may_read() || SSL_has_pending(ssl_.get()) != 0;
}

IoResult Transport::read_records(std::span<std::byte> room) {
  std::size_t total = 0;
  IoResult stopped = IoResult::blocked();
  while (total < room.size()) {
    const std::span<std::byte> input = bio_.input();
    if (!records_->can_read(input)) {
      stopped = bio_.fill(RecordLayer::bytes_wanted(input));
      if (stopped.ok()) continue;
      // A bare FIN: the peer has not said that this was all.
      if (stopped.status == IoStatus::end) stopped.status = IoStatus::truncated;
      break;
    }
    const RecordLayer::Step step = records_->read(input, room.subspan(total));
    bio_.consume(step.consumed);
    total += step.bytes;
    if (step.kind != RecordLayer::Step::Kind::moved) {
      stopped = step_ended(step);
      break;
    }
  }
  if (total < room.size() && !stopped.would_block()) {
    input_end_ = stopped;
    broken_ = broken_ || stopped.status != IoStatus::end;
  }
  return total > 0 ? IoResult::moved(total) : stopped;
}

// What a step that is the last one means for the leg.
IoResult Transport::step_ended(const RecordLayer::Step& step) {
  if (step.kind == RecordLayer::Step::Kind::closed) return {IoStatus::end, 0, 0};
  const bool ours = step.kind == RecordLayer::Step::Kind::violated;
  note_alert(SSL3_AL_FATAL << 8 | static_cast<int>(step.alert), ours);
  if (ours && send_alert(step.alert)) static_cast<void>(bio_.flush());
  return {IoStatus::failed, 0, 0};
}

// Adds an alert to the output; false when there is no room for it now.
bool Transport::send_alert(AlertCode code) {
  std::byte* place = bio_.place_output(RecordLayer::kAlertRecord);
  if (place == nullptr) return false;
  bio_.commit_output(records_->write_alert(code, place));
  return true;
}

IoResult Transport::write_records(std::span<const std::byte> data) {
  std::size_t fits = 0;
  if (!bio_.reserve(data.size(), fits)) return IoResult::blocked();
  for (std::size_t total = 0; total < fits;) {
    const auto content = data.subspan(total, std::min(kLargestPlaintext, fits - total));
    std::byte* place = bio_.place_output(content.size() + kRecordOverhead + RecordLayer::kKeyUpdateRecord);
    TLSPROXY_DCHECK(place != nullptr, "what was reserved is there, with the framing");
    const std::size_t made = records_->write(content, place);
    if (made == 0) {
      broken_ = true;
      return {IoStatus::failed, 0, 0};
    }
    bio_.commit_output(made);
    total += content.size();
  }
  const IoResult flushed = bio_.flush();
  if (!flushed.ok() && !flushed.would_block()) return flushed;
  return IoResult::moved(fits);
}

IoResult Transport::write(std::span<const std::byte> data) {
  if (broken_ || output_ended_) return {IoStatus::failed, 0, 0};
  if (const IoResult flushed = bio_.flush(); !flushed.ok()) return flushed;
  if (records_) return write_records(data);
  std::size_t fits = 0;
  if (!bio_.reserve(data.size(), fits)) return IoResult::blocked();
  std::size_t total = 0;
  while (total < fits) {
    const std::size_t size = std::min(kLargestPlaintext, fits - total);
    empty_error_queue();
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
  if (orderly && !notified_ && !broken_) {
    // Queues our close_notify; the peer's is not waited for here.
    if (records_) {
      if (!send_alert(AlertCode::close_notify)) {
        const IoResult flushed = bio_.flush();
        if (!flushed.ok()) return flushed;
        if (!send_alert(AlertCode::close_notify)) return IoResult::blocked();
      }
    } else if (SSL_is_init_finished(ssl_.get())) {
      ERR_clear_error();
      SSL_shutdown(ssl_.get());
      ERR_clear_error();
    }
  }
  notified_ = true;
  const IoResult flushed = bio_.flush(transport::Socket::Then::shutdown);
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
  static_cast<Transport*>(SSL_get_app_data(ssl))->note_alert(value, (where & SSL_CB_WRITE) != 0);
}

void Transport::note_alert(int value, bool sent) {
  std::string description = base::to_lower(SSL_alert_desc_string_long(value));
  std::replace(description.begin(), description.end(), ' ', '_');
  alert_ = Alert{std::move(description), sent};
}

void Transport::on_message(int written, int, int type, const void*, std::size_t, SSL*, void* me) {
  auto& greeting = static_cast<Transport*>(me)->greeting_;
  if (written != 0 && type == SSL3_RT_HEADER && greeting) ++greeting->records_written;
}

void Transport::watch_names(SSL_CTX* context) {
  // What the macro SSL_CTX_set_tlsext_servername_callback does, without its C cast.
  SSL_CTX_callback_ctrl(context, SSL_CTRL_SET_TLSEXT_SERVERNAME_CB,
                        reinterpret_cast<void (*)()>(&Transport::on_server_name));
}

int Transport::on_server_name(SSL* ssl, int* alert, void*) {
  auto* me = static_cast<Transport*>(SSL_get_app_data(ssl));
  if (me == nullptr || !me->greeting_) return SSL_TLSEXT_ERR_NOACK;
  const char* asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  std::string name = asked == nullptr ? "" : base::to_lower(asked);
  if (name.ends_with('.')) name.pop_back();
  if (name == me->greeting_->name) return name.empty() ? SSL_TLSEXT_ERR_NOACK : SSL_TLSEXT_ERR_OK;
  me->name_changed_ = true;
  *alert = SSL_AD_ILLEGAL_PARAMETER;
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

record::TlsFacts Transport::facts() const {
  if (!uses_openssl()) return told_.facts;
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
  if (!uses_openssl()) return told_.alpn;
  const unsigned char* name = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

std::string Transport::peer_subject() const {
  return uses_openssl() ? tls::peer_subject(ssl_.get()) : told_.peer_subject;
}

std::string Transport::verify_error() const {
  if (!uses_openssl()) return {};  // it was accepted
  return greeting_ && greeting_->no_certificate ? "no certificate" : tls::verify_error(ssl_.get());
}

}  // namespace tlsproxy::tls
