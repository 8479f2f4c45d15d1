#include "server/acceptor.h"

#include <sys/socket.h>

#include <cerrno>

#include "os/syscalls.h"

namespace tlsproxy::server {
namespace {

enum class Failure { queue_empty, of_that_client, of_ours };

// Linux passes a pending network error of the new socket on to accept (accept(2)): that client is lost,
// the next one may be fine.
Failure classify(int error) {
  switch (error) {
    case EAGAIN:
      return Failure::queue_empty;
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case ETIMEDOUT:
      return Failure::of_that_client;
    default:
      return Failure::of_ours;
  }
}

}  // namespace

void Acceptor::resume() {
  if (event_.started()) return;
  event_.start<&Acceptor::on_readable>(loop_, socket_->get(), loop::IoEvent::Trigger::level_read, *this);
}

void Acceptor::finish(int most) {
  pause();
  for (int i = 0; i < most && accept_one(); ++i) {
  }
}

void Acceptor::on_readable(loop::IoNews) {
  for (int i = 0; i < kBatch && accept_one(); ++i) {
  }
}

bool Acceptor::accept_one() {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  os::Fd client(os::syscalls().accept4(socket_->get(), reinterpret_cast<sockaddr*>(&storage), &length,
                                       SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (client) {
    const auto peer = os::SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&storage), length);
    owner_.accepted(*this, std::move(client), peer);
    return true;
  }
  const int error = errno;
  const Failure failure = classify(error);
  if (failure == Failure::of_ours) owner_.cannot_accept(error);
  return failure == Failure::of_that_client;
}

}  // namespace tlsproxy::server
