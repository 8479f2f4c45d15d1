#include "support/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace tlsproxy::support {
namespace {

void require(bool held, const char* what) {
  if (!held) throw std::runtime_error(what);
}

}  // namespace

std::pair<os::Fd, os::Fd> connected_pair(bool tcp) {
  if (!tcp) {
    int fds[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    return {os::Fd(fds[0]), os::Fd(fds[1])};
  }
  os::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  require(::bind(listener.get(), generic, length) == 0 && ::listen(listener.get(), 1) == 0, "listen");
  require(::getsockname(listener.get(), generic, &length) == 0, "getsockname");
  os::Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(::connect(client.get(), generic, length) == 0, "connect");
  os::Fd server(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  require(static_cast<bool>(server), "accept");
  require(::fcntl(client.get(), F_SETFL, O_NONBLOCK) == 0, "fcntl");
  return {std::move(client), std::move(server)};
}

std::string read_available(int fd) {
  std::string all;
  char chunk[65536];
  for (;;) {
    const ssize_t got = ::read(fd, chunk, sizeof(chunk));
    if (got <= 0) return all;
    all.append(chunk, static_cast<std::size_t>(got));
  }
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string pattern(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

}  // namespace tlsproxy::support
