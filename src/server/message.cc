#include "server/message.h"

#include <utility>

#include "base/check.h"
#include "server/bytes.h"

namespace tlsproxy::server {
namespace {

// One list of fields per message serves both directions: `Form` is a Writer or a Reader.
template <class Form>
void fields(Form& form, BeginGeneration& m) {
  form.number(m.id);
  form.descriptor(m.bundle);
  form.descriptor(m.error_log);
  form.optional_descriptor(m.access_log);
}

template <class Form>
void fields(Form& form, ListenSocket& m) {
  form.number(m.id);
  form.number(m.listener);
  form.number(m.bind);
  form.optional_descriptor(m.fd);
}

template <class Form>
void fields(Form& form, Prepare& m) {
  form.number(m.id);
}

template <class Form>
void fields(Form& form, Commit& m) {
  form.number(m.id);
}

template <class Form>
void fields(Form& form, Abandon& m) {
  form.number(m.id);
}

template <class Form>
void fields(Form& form, LogTargets& m) {
  form.descriptor(m.error_log);
  form.optional_descriptor(m.access_log);
}

template <class Form>
void fields(Form& form, Quit& m) {
  form.optional_duration(m.limit);
}

template <class Form>
void fields(Form&, Stop&) {}

template <class Form>
void fields(Form&, Ping&) {}

template <class Form>
void fields(Form& form, Prepared& m) {
  form.number(m.id);
}

template <class Form>
void fields(Form& form, Applied& m) {
  form.number(m.id);
}

template <class Form>
void fields(Form& form, Refused& m) {
  form.number(m.id);
  form.text(m.text);
}

template <class Form>
void fields(Form&, Pong&) {}

class Writer {
 public:
  Writer() : bytes_(kLongestMessage, '\0'), writer_(bytes_) {}

  void number(std::uint64_t value) { writer_.number(value); }
  void text(const std::string& value) { writer_.text(std::string_view(value).substr(0, kLongestText)); }
  void descriptor(const SharedFd& fd) {
    TLSPROXY_CHECK(fd != nullptr && *fd, "a descriptor that a message must carry is there");
    fds_.push_back(fd);
  }
  void optional_descriptor(const SharedFd& fd) {
    number(fd != nullptr ? 1 : 0);
    if (fd != nullptr) descriptor(fd);
  }
  void optional_duration(const std::optional<std::chrono::milliseconds>& value) {
    number(value ? 1 : 0);
    if (value) number(static_cast<std::uint64_t>(value->count()));
  }

  Packet finish() {
    bytes_.resize(writer_.used());
    return Packet{std::move(bytes_), std::move(fds_)};
  }

 private:
  std::string bytes_;
  ByteWriter writer_;
  std::vector<SharedFd> fds_;
};

class Reader {
 public:
  explicit Reader(const Packet& packet) : reader_(packet.bytes), fds_(packet.fds) {}

  void number(std::uint64_t& value) { value = reader_.number(); }
  void text(std::string& value) {
    value = reader_.text();
    if (value.size() > kLongestText) ok_ = false;
  }
  void descriptor(SharedFd& fd) {
    if (next_fd_ < fds_.size()) {
      fd = fds_[next_fd_++];
    } else {
      ok_ = false;
    }
  }
  void optional_descriptor(SharedFd& fd) {
    if (flag()) descriptor(fd);
  }
  void optional_duration(std::optional<std::chrono::milliseconds>& value) {
    if (flag()) value = std::chrono::milliseconds(static_cast<std::int64_t>(reader_.number()));
  }

  [[nodiscard]] bool complete() const {
    return ok_ && reader_.ok() && reader_.at_end() && next_fd_ == fds_.size();
  }

 private:
  bool flag() {
    const std::uint64_t value = reader_.number();
    if (value > 1) ok_ = false;
    return value == 1;
  }

  ByteReader reader_;
  const std::vector<SharedFd>& fds_;
  std::size_t next_fd_ = 0;
  bool ok_ = true;
};

template <std::size_t... I>
bool emplace(Message& message, std::uint64_t kind, std::index_sequence<I...>) {
  return ((I == kind && (static_cast<void>(message.emplace<I>()), true)) || ...);
}

}  // namespace

Packet encode(Message message) {
  Writer writer;
  writer.number(message.index());
  std::visit([&writer](auto& body) { fields(writer, body); }, message);
  return writer.finish();
}

base::Result<Message> decode(const Packet& packet) {
  Reader reader(packet);
  std::uint64_t kind = 0;
  reader.number(kind);
  Message message;
  if (!emplace(message, kind, std::make_index_sequence<std::variant_size_v<Message>>())) {
    return base::failure("a message of an unknown kind");
  }
  std::visit([&reader](auto& body) { fields(reader, body); }, message);
  if (!reader.complete()) return base::failure("a message with damaged fields or missing descriptors");
  return message;
}

}  // namespace tlsproxy::server
