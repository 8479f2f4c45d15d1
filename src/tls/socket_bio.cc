#include "tls/socket_bio.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tlsproxy::tls {
namespace {

using transport::IoResult;
using transport::IoStatus;

SocketBio& self(BIO* bio) {
  return *static_cast<SocketBio*>(BIO_get_data(bio));
}

}  // namespace

SocketBio::~SocketBio() {
  input_.discard(*pool_);
  if (output_) pool_->give_back(output_);
}

const BIO_METHOD* SocketBio::method() {
  static const BIO_METHOD* const made = [] {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tlsproxy socket");
    TLSPROXY_CHECK(method != nullptr, "OpenSSL has memory for one more kind of BIO");
    BIO_meth_set_read_ex(method, &SocketBio::on_read);
    BIO_meth_set_write_ex(method, &SocketBio::on_write);
    BIO_meth_set_ctrl(method, &SocketBio::on_control);
    return method;
  }();
  return made;
}

BIO* SocketBio::make_bio() {
  BIO* bio = BIO_new(method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  return bio;
}

int SocketBio::on_read(BIO* bio, char* data, std::size_t size, std::size_t* got) {
  SocketBio& me = self(bio);
  BIO_clear_retry_flags(bio);
  *got = 0;
  if (me.input_.empty()) {
    me.last_read_ = IoResult::blocked();
    if (me.socket_->may_read()) {
      if (me.input_.prepare(*me.pool_)) {
        me.last_read_ = me.socket_->read(me.input_.framed_room());
        if (me.last_read_.ok()) me.input_.commit(me.last_read_.bytes);
      } else {
        me.starved_ = true;
      }
    }
    if (!me.last_read_.ok()) {
      me.input_.release(*me.pool_);
      if (me.last_read_.would_block()) BIO_set_retry_read(bio);
      return 0;
    }
  }
  const auto pending = me.input_.pending();
  *got = std::min(size, pending.size());
  std::memcpy(data, pending.data(), *got);
  me.input_.consume(*got);
  me.input_.release(*me.pool_);
  return 1;
}

int SocketBio::on_write(BIO* bio, const char* data, std::size_t size, std::size_t* written) {
  SocketBio& me = self(bio);
  BIO_clear_retry_flags(bio);
  *written = 0;
  if (me.drop_output_) {
    *written = size;
    return 1;
  }
  // Without a reservation this is a handshake flight: a medium block holds all but extreme ones.
  if (!me.output_ && !me.take_output_block(buffer::BlockSize::medium)) {
    BIO_set_retry_write(bio);
    return 0;
  }
  if (me.output_room() == 0) {
    const IoResult flushed = me.flush();
    if (flushed.would_block()) {
      BIO_set_retry_write(bio);
      return 0;
    }
    if (!flushed.ok() || !me.take_output_block(buffer::BlockSize::medium)) return 0;
  }
  *written = std::min(size, me.output_room());
  std::memcpy(me.output_.data + me.out_tail_, data, *written);
  me.out_tail_ += static_cast<std::uint32_t>(*written);
  return 1;
}

long SocketBio::on_control(BIO* bio, int command, long, void*) {
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;  // the transport flushes when its verb is done, not OpenSSL after each flight
    case BIO_CTRL_PENDING:
      return static_cast<long>(self(bio).input_.pending().size());
    case BIO_CTRL_WPENDING:
      return static_cast<long>(self(bio).out_tail_ - self(bio).out_head_);
    case BIO_CTRL_EOF:
      return self(bio).last_read_.status == IoStatus::end ? 1 : 0;
    default:
      return 0;
  }
}

IoResult SocketBio::fill(std::size_t whole) {
  if (!socket_->may_read()) return IoResult::blocked();
  if (!(input_.empty() ? input_.prepare(*pool_) : input_.gather(*pool_, whole))) {
    starved_ = true;
    return IoResult::blocked();
  }
  const IoResult got = socket_->read(input_.framed_room());
  if (got.ok()) input_.commit(got.bytes);
  input_.release(*pool_);
  return got;
}

void SocketBio::consume(std::size_t bytes) {
  input_.consume(bytes);
  input_.release(*pool_);
}

std::byte* SocketBio::place_output(std::size_t bytes) {
  if (!output_ && !take_output_block(buffer::BlockSize::small)) return nullptr;
  return output_room() < bytes ? nullptr : output_.data + out_tail_;
}

bool SocketBio::take_output_block(buffer::BlockSize size) {
  if (output_) return true;
  output_ = pool_->take(size, buffer::BlockPool::Purpose::move_on);
  if (!output_) starved_ = true;
  return static_cast<bool>(output_);
}

std::size_t SocketBio::output_room() const {
  return output_ ? output_.capacity + buffer::BlockPool::kFraming - out_tail_ : 0;
}

bool SocketBio::reserve(std::size_t plaintext, std::size_t& fits) {
  TLSPROXY_DCHECK(!has_output(), "room is reserved in an empty output");
  auto size = buffer::BlockSize::small;
  if (plaintext > pool_->capacity(buffer::BlockSize::small)) size = buffer::BlockSize::medium;
  if (plaintext > pool_->capacity(buffer::BlockSize::medium)) size = buffer::BlockSize::large;
  if (!take_output_block(size)) return false;
  fits = std::min<std::size_t>(plaintext, output_.capacity);
  return true;
}

IoResult SocketBio::flush(transport::Socket::Then then) {
  while (has_output()) {
    if (!socket_->may_write()) return IoResult::blocked();
    const IoResult sent = socket_->write({output_.data + out_head_, out_tail_ - out_head_}, then);
    if (sent.would_block()) return sent;
    if (!sent.ok()) {
      out_head_ = out_tail_ = 0;
      pool_->give_back(output_);
      drop_output_ = true;
      return sent;
    }
    out_head_ += static_cast<std::uint32_t>(sent.bytes);
  }
  out_head_ = out_tail_ = 0;
  if (output_) pool_->give_back(output_);
  return IoResult::done();
}

bool SocketBio::take_starved() {
  const bool starved = starved_;
  starved_ = false;
  return starved;
}

}  // namespace tlsproxy::tls
