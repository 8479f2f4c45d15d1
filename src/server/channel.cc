#include "server/channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tlsproxy::server {
namespace {

constexpr std::size_t kControlSize = CMSG_SPACE(sizeof(int) * kMostDescriptors);

enum class Sent { done, later, gone };

Sent send_now(int fd, const Packet& packet) {
  iovec data{const_cast<char*>(packet.bytes.data()), packet.bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, kControlSize> control{};
  if (!packet.fds.empty()) {
    const std::size_t size = sizeof(int) * packet.fds.size();
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(size);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(size);
    for (std::size_t i = 0; i < packet.fds.size(); ++i) {
      const int descriptor = packet.fds[i]->get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &descriptor, sizeof(int));
    }
  }
  for (;;) {
    if (::sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::done;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: more descriptors are under way than the user may have open (unix(7)); they are
    // fewer when the worker has received some.
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM ||
                      errno == ETOOMANYREFS;
    return full ? Sent::later : Sent::gone;
  }
}

std::vector<SharedFd> take_descriptors(msghdr& header) {
  std::vector<SharedFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.push_back(share(os::Fd(descriptor)));
    }
  }
  return fds;
}

Received damaged(std::string problem) {
  return Received{Received::Kind::damaged, {}, std::move(problem)};
}

}  // namespace

base::Result<std::pair<Channel, Channel>> Channel::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return base::system_failure("cannot make a channel to a worker", errno);
  }
  return std::pair<Channel, Channel>(Channel(os::Fd(ends[0])), Channel(os::Fd(ends[1])));
}

void Channel::send(Message message) {
  outbox_.push_back(encode(std::move(message)));
  flush();
}

void Channel::flush() {
  while (!outbox_.empty()) {
    const Sent sent = end_ ? send_now(end_.get(), outbox_.front()) : Sent::gone;
    if (sent == Sent::later) return;
    if (sent == Sent::gone) {
      outbox_.clear();
      return;
    }
    outbox_.pop_front();
  }
}

Received Channel::receive() {
  if (!end_) return Received{Received::Kind::closed, {}, {}};
  Packet packet;
  packet.bytes.resize(kLongestMessage);
  iovec data{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) std::array<char, kControlSize> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(end_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM)) return {};
  if (got <= 0) return Received{Received::Kind::closed, {}, {}};
  packet.bytes.resize(static_cast<std::size_t>(got));
  packet.fds = take_descriptors(header);
  if ((header.msg_flags & MSG_TRUNC) != 0) return damaged("a message longer than any");
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return damaged("a descriptor of a message did not arrive (is the limit of open files reached?)");
  }
  auto message = decode(packet);
  if (!message) return damaged(message.error().message);
  return Received{Received::Kind::message, std::move(*message), {}};
}

void Channel::close() {
  end_.reset();
  outbox_.clear();
}

}  // namespace tlsproxy::server
