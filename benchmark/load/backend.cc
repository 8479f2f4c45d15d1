#include "backend.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "clock.h"
#include "process.h"

namespace tlsproxy::load {
namespace {

constexpr std::size_t kMostClients = std::size_t{128} * 1024;
constexpr int kAcceptsPerTurn = 64;
constexpr int kStepsPerTurn = 16;
constexpr int kBacklog = 65535;  // the system takes as much of it as net.core.somaxconn allows

// Tags are the clients' descriptors; these two are none.
constexpr std::uint64_t kListenerTag = ~std::uint64_t{0};
constexpr std::uint64_t kStopTag = kListenerTag - 1;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

base::Result<os::Fd> listen_on(const os::SocketAddress& address) {
  os::Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return base::system_failure("socket", errno);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.is_ip())
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // clients inherit it
  if (::bind(fd.get(), address.data(), address.size()) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return base::system_failure("cannot listen on " + address.to_string(), errno);
  }
  return fd;
}

}  // namespace

base::Result<std::unique_ptr<Backend>> Backend::make(const BackendOptions& options) {
  auto listener = listen_on(options.listen);
  if (!listener) return tl::unexpected(listener.error());
  auto poller = Poller::make();
  if (!poller) return tl::unexpected(poller.error());
  const std::size_t most_clients = std::min(raise_file_limit(), kMostClients);
  auto kept = ReservedMemory::make(most_clients * kStreamBlock);
  if (!kept) return tl::unexpected(kept.error());
  return std::unique_ptr<Backend>(
      new Backend(options, std::move(*listener), std::move(*poller), most_clients, std::move(*kept)));
}

Backend::Backend(const BackendOptions& options, os::Fd listener, Poller poller, std::size_t most_clients,
                 ReservedMemory kept)
    : options_(options),
      listener_(std::move(listener)),
      poller_(std::move(poller)),
      clients_(most_clients),
      kept_(std::move(kept)),
      scratch_(std::max(kStreamBlock, options.answer_size)) {}

os::SocketAddress Backend::address() const {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&storage), &length);
  return os::SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&storage), length);
}

base::Status Backend::run(int stop) {
  if (!poller_.add(stop, kStopTag, EPOLLIN)) return base::system_failure("epoll_ctl", errno);
  watch_listener(true);
  while (true) {
    for (const epoll_event& event : poller_.wait(now() + kSecond)) {
      if (event.data.u64 == kStopTag) return {};
      if (event.data.u64 == kListenerTag) {
        accept_clients();
      } else if (clients_[event.data.u64].fd) {
        serve(clients_[event.data.u64]);
      }
    }
  }
}

// Without a free descriptor a listener that is watched would wake us for ever: it rests until a client goes.
void Backend::watch_listener(bool watched) {
  if (watched == listener_is_watched_) return;
  if (watched) {
    poller_.add(listener_.get(), kListenerTag, EPOLLIN);
  } else {
    poller_.remove(listener_.get());
  }
  listener_is_watched_ = watched;
}

void Backend::accept_clients() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    os::Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      welcome(std::move(fd));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) watch_listener(false);
    return;
  }
}

void Backend::welcome(os::Fd fd) {
  const auto tag = static_cast<std::size_t>(fd.get());
  const std::uint32_t interest = options_.service == Service::source ? EPOLLOUT : EPOLLIN;
  counts_.connections += 1;
  if (tag >= clients_.size() || !poller_.add(fd.get(), tag, interest)) {
    counts_.failed += 1;
    return;
  }
  Client& client = clients_[tag];
  client = Client{};
  client.fd = std::move(fd);
  client.interest = interest;
  if (options_.service == Service::answer) {
    client.incoming = IncomingBlocks::of_unknown_origin(kRequestSize);
    client.outgoing = OutgoingBlocks(options_.answer_size, first_block(counts_.connections));
  } else if (options_.service == Service::sink) {
    client.incoming = IncomingBlocks::of_unknown_origin(kStreamBlock);
    client.outgoing = OutgoingBlocks(kMarkSize, kFirstAcknowledgement);
  } else if (options_.service == Service::source) {
    client.outgoing = OutgoingBlocks(kStreamBlock, first_block(counts_.connections));
    client.remaining = options_.stream_bytes == 0 ? UINT64_MAX : options_.stream_bytes;
  }
  open_ += 1;
  counts_.open_most = std::max(counts_.open_most, open_);
}

void Backend::serve(Client& client) {
  Turn turn = deliver_kept(client);
  for (int step = 0; turn == Turn::go_on && step < kStepsPerTurn; ++step) turn = take_turn(client);

  if (turn == Turn::end || turn == Turn::fail) {
    close(client, turn == Turn::fail);
    return;
  }
  // One that may go on is still ready for what the service begins with, and is woken again at once.
  const bool to_write =
      turn == Turn::go_on ? options_.service == Service::source : turn == Turn::wait_to_write;
  const std::uint32_t interest = to_write ? EPOLLOUT : EPOLLIN;
  if (interest == client.interest) return;
  client.interest = interest;
  poller_.change(client.fd.get(), static_cast<std::uint64_t>(client.fd.get()), interest);
}

Backend::Turn Backend::take_turn(Client& client) {
  switch (options_.service) {
    case Service::echo:
      return echo(client);
    case Service::answer:
      return answer(client);
    case Service::sink:
      return sink(client);
    case Service::source:
      return source(client);
  }
  return Turn::fail;
}

Backend::Turn Backend::echo(Client& client) {
  std::span<const std::uint8_t> bytes;
  const Turn received = receive(client, bytes);
  if (bytes.empty()) return received;
  const Turn delivered = deliver(client, bytes);
  return delivered == Turn::go_on ? received : delivered;
}

Backend::Turn Backend::answer(Client& client) {
  Turn received = Turn::go_on;
  if (client.remaining == 0) {
    std::span<const std::uint8_t> bytes;
    received = receive(client, bytes);
    if (bytes.empty()) return received;
    const auto taken = client.incoming.take(bytes);
    counts_.checked += taken.marks;
    counts_.mismatches += taken.wrong;
    client.remaining = taken.blocks * options_.answer_size;
  }
  while (client.remaining > 0) {
    const auto bytes = client.outgoing.rest(scratch_);
    std::size_t sent = 0;
    const Turn turn = send_some(client, bytes, sent);
    client.outgoing.sent(sent);
    client.remaining -= sent;
    if (turn != Turn::go_on) return turn;
  }
  return received;
}

Backend::Turn Backend::sink(Client& client) {
  std::span<const std::uint8_t> bytes;
  const Turn received = receive(client, bytes);
  if (bytes.empty()) return received;
  const auto taken = client.incoming.take(bytes);
  counts_.checked += taken.marks;
  counts_.mismatches += taken.wrong;
  const std::uint64_t acknowledged = client.received / kAcknowledgedBytes;
  client.received += bytes.size();
  if (client.received / kAcknowledgedBytes == acknowledged) return received;

  // One read is far below a MiB, so at most one acknowledgement is due.
  const auto mark = client.outgoing.rest(std::span(scratch_).first(kMarkSize));
  client.outgoing.sent(mark.size());
  const Turn delivered = deliver(client, mark);
  return delivered == Turn::go_on ? received : delivered;
}

Backend::Turn Backend::source(Client& client) {
  if (client.remaining == 0) return Turn::end;
  auto bytes = client.outgoing.rest(scratch_);
  bytes =
      bytes.first(std::min({bytes.size(), options_.write_size, static_cast<std::size_t>(client.remaining)}));
  std::size_t sent = 0;
  const Turn turn = send_some(client, bytes, sent);
  client.outgoing.sent(sent);
  if (options_.stream_bytes != 0) client.remaining -= sent;
  return turn == Turn::fail ? Turn::end : turn;  // who has enough of an endless stream just leaves
}

// Takes what has come into `scratch_`. A short read means that there is no more, so it is not asked again.
Backend::Turn Backend::receive(Client& client, std::span<const std::uint8_t>& bytes) {
  const ssize_t size = ::recv(client.fd.get(), scratch_.data(), scratch_.size(), 0);
  if (size == 0) return Turn::end;
  if (size < 0) return would_block(errno) ? Turn::wait_to_read : Turn::fail;
  bytes = std::span(scratch_).first(static_cast<std::size_t>(size));
  counts_.bytes_in += bytes.size();
  return bytes.size() == scratch_.size() ? Turn::go_on : Turn::wait_to_read;
}

// Sends, and keeps what cannot be sent yet.
Backend::Turn Backend::deliver(Client& client, std::span<const std::uint8_t> bytes) {
  std::size_t sent = 0;
  const Turn turn = send_some(client, bytes, sent);
  if (turn != Turn::wait_to_write) return turn;
  const auto rest = bytes.subspan(sent);
  std::copy(rest.begin(), rest.end(), buffer_of(client).begin());
  client.kept_from = 0;
  client.kept_to = rest.size();
  return turn;
}

Backend::Turn Backend::deliver_kept(Client& client) {
  if (client.kept_from == client.kept_to) return Turn::go_on;
  const auto kept = buffer_of(client).subspan(client.kept_from, client.kept_to - client.kept_from);
  std::size_t sent = 0;
  const Turn turn = send_some(client, kept, sent);
  client.kept_from += sent;
  return turn;
}

// go_on when all of it was sent.
Backend::Turn Backend::send_some(Client& client, std::span<const std::uint8_t> bytes, std::size_t& sent) {
  const ssize_t size = ::send(client.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (size < 0) return would_block(errno) ? Turn::wait_to_write : Turn::fail;
  sent = static_cast<std::size_t>(size);
  counts_.bytes_out += sent;
  return sent == bytes.size() ? Turn::go_on : Turn::wait_to_write;
}

std::span<std::uint8_t> Backend::buffer_of(const Client& client) const {
  const auto index = static_cast<std::size_t>(client.fd.get());
  return kept_.bytes().subspan(index * kStreamBlock, kStreamBlock);
}

void Backend::close(Client& client, bool failed) {
  counts_.failed += failed ? 1 : 0;
  open_ -= 1;
  client.fd.reset();
  watch_listener(true);
}

}  // namespace tlsproxy::load
