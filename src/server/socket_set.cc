#include "server/socket_set.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

namespace tlsproxy::server {
namespace {

// The path of a unix socket that has a file; empty for any other address.
std::string file_of(const os::SocketAddress& address) {
  if (!address.is_unix()) return {};
  std::string path = address.host().substr(std::string("unix:").size());
  if (!path.empty() && path[0] == '@') path.clear();
  return path;
}

std::string kind_of(const config::Bind& bind, const config::Listener& listener) {
  if (!bind.systemd_name.empty()) return "systemd:" + bind.systemd_name;
  std::string kind = bind.address.to_string();
  if (bind.address.family() == AF_INET6) kind += bind.v6only ? " v6only" : " v4 too";
  // The kernel chooses the port, so the address alone does not say which place it is.
  if (bind.address.is_ip() && bind.address.port() == 0) kind += " of " + listener.name;
  return kind;
}

os::SocketAddress local_address(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return os::SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&storage), length);
}

// What every client's socket needs is set on the listening one, from which Linux inherits it (tcp(7), and
// sk_clone_lock in the kernel): no system call per client.
void set_for_clients(int fd) {
  const int on = 1;
  // These fail on sockets of other families that systemd may hand over, which have no use for them.
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)));
}

base::Result<os::Fd> new_socket(const os::SocketAddress& address, const config::Bind& bind, bool reuse_port) {
  os::Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return base::system_failure("socket", errno);
  const auto set = [&fd](int level, int option, int value) {
    return ::setsockopt(fd.get(), level, option, &value, sizeof(value)) == 0;
  };
  bool done = set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (done && reuse_port) done = set(SOL_SOCKET, SO_REUSEPORT, 1);
  if (done && address.family() == AF_INET6) done = set(IPPROTO_IPV6, IPV6_V6ONLY, bind.v6only ? 1 : 0);
  if (!done) return base::system_failure("setsockopt", errno);
  if (::bind(fd.get(), address.data(), address.size()) != 0) return base::system_failure("bind", errno);
  return fd;
}

base::Result<os::Fd> listen_on_ip(const os::SocketAddress& address, const config::Bind& bind) {
  auto fd = new_socket(address, bind, true);
  if (!fd) return fd;
  set_for_clients(fd->get());
  if (::listen(fd->get(), bind.backlog) != 0) return base::system_failure("listen", errno);
  return fd;
}

// A file that an earlier run left behind is in the way and nobody accepts on it: it is removed. A live
// one, or a file that is no socket, is not ours to touch.
base::Status clear_path(const os::SocketAddress& address) {
  const std::string path = file_of(address);
  struct stat status {};
  if (path.empty() || ::lstat(path.c_str(), &status) != 0) return {};
  if (!S_ISSOCK(status.st_mode)) return base::failure("the path exists and is no socket");
  const os::Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return base::system_failure("socket", errno);
  if (::connect(probe.get(), address.data(), address.size()) == 0 || errno != ECONNREFUSED) {
    return base::failure("another process listens there");
  }
  if (::unlink(path.c_str()) != 0) return base::system_failure("removing the stale socket", errno);
  return {};
}

base::Result<os::Fd> listen_on_unix(const config::Bind& bind) {
  if (auto clear = clear_path(bind.address); !clear) return tl::unexpected(clear.error());
  os::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return base::system_failure("socket", errno);
  // Mode 0666 from the first moment: who may connect is decided by the folder the socket is in.
  const mode_t mask = ::umask(0111);
  const int bound = ::bind(fd.get(), bind.address.data(), bind.address.size());
  const int error = errno;
  ::umask(mask);
  if (bound != 0) return base::system_failure("bind", error);
  if (::listen(fd.get(), bind.backlog) != 0) return base::system_failure("listen", errno);
  return fd;
}

std::string names_in(const systemd::InheritedSockets& inherited) {
  if (inherited.empty()) return "none was passed to this process";
  std::string names = "passed were:";
  for (const auto& [name, sockets] : inherited) names += " " + name;
  return names;
}

class Opener {
 public:
  Opener(const SocketSet& present, const systemd::InheritedSockets& inherited, std::uint64_t& next_id,
         config::Diagnostics& diagnostics)
      : present_(present), inherited_(inherited), next_id_(next_id), diagnostics_(diagnostics) {}

  // With SO_REUSEPORT a bind succeeds beside another program of the same user, which then takes a share
  // of the connections. So each new address is first bound without it. Where we hold the port ourselves
  // that tells nothing, and is left out.
  bool probe(const config::Listener& listener, const config::Bind& bind) {
    if (!bind.address.is_ip() || bind.address.port() == 0) return true;
    for (const Place& place : present_.places()) {
      if (place.address.port() == bind.address.port()) return true;
    }
    return usable(new_socket(bind.address, bind, false), listener, bind).has_value();
  }

  void open(const config::Listener& listener, const config::Bind& bind, std::size_t count, Place& place) {
    if (!bind.systemd_name.empty()) return inherit(listener, bind, place);
    if (bind.address.is_unix()) {
      place.address = bind.address;
      for (std::size_t i = 0; i < count; ++i) add(usable(listen_on_unix(bind), listener, bind), place);
      return;
    }
    // Socket two and later of a place whose port the kernel chose take the port of the first.
    os::SocketAddress address = place.sockets.empty() ? bind.address : place.address;
    for (std::size_t i = 0; i < count; ++i) {
      if (!add(usable(listen_on_ip(address, bind), listener, bind), place)) return;
      address = place.address;
    }
  }

 private:
  std::optional<os::Fd> usable(base::Result<os::Fd> fd, const config::Listener& listener,
                               const config::Bind& bind) {
    if (fd) return std::move(*fd);
    const std::string where =
        bind.address.is_unix() || bind.address.is_ip() ? bind.address.to_string() : bind.text.value;
    diagnostics_.error(bind.text.mark, "listener '" + listener.name + "': cannot listen on " + where + ": " +
                                           fd.error().message);
    return std::nullopt;
  }

  void inherit(const config::Listener& listener, const config::Bind& bind, Place& place) {
    const auto found = inherited_.find(bind.systemd_name);
    if (found == inherited_.end()) {
      diagnostics_.error(bind.text.mark, "listener '" + listener.name +
                                             "': systemd passed no socket named '" + bind.systemd_name +
                                             "'; " + names_in(inherited_));
      return;
    }
    for (const SharedFd& fd : found->second) {
      set_for_clients(fd->get());
      place.sockets.push_back({next_id_++, fd});
    }
    place.address = local_address(found->second.front()->get());
  }

  bool add(std::optional<os::Fd> fd, Place& place) {
    if (!fd) return false;
    if (!place.address.is_unix()) place.address = local_address(fd->get());
    place.sockets.push_back({next_id_++, share(std::move(*fd))});
    return true;
  }

  const SocketSet& present_;
  const systemd::InheritedSockets& inherited_;
  std::uint64_t& next_id_;
  config::Diagnostics& diagnostics_;
};

}  // namespace

std::vector<PlanStep> plan_places(std::span<const PresentPlace> have, std::span<const WantedPlace> want) {
  std::map<std::string_view, std::size_t> by_key;
  for (std::size_t i = 0; i < have.size(); ++i) by_key.emplace(have[i].key, i);
  std::vector<PlanStep> steps;
  for (const WantedPlace& place : want) {
    PlanStep step{{}, place.each};
    if (const auto found = by_key.find(place.key); found != by_key.end()) {
      step.continues = found->second;
      step.to_open = place.each - std::min(place.each, have[found->second].sockets);
    }
    steps.push_back(step);
  }
  return steps;
}

std::optional<SocketSet> SocketSet::open(const config::Config& config, std::size_t workers,
                                         const SocketSet& present, const systemd::InheritedSockets& inherited,
                                         config::Diagnostics& diagnostics) {
  struct Wish {
    const config::Listener* listener;
    const config::Bind* bind;
  };
  SocketSet next;
  next.next_id_ = present.next_id_;
  std::vector<Wish> wishes;
  std::vector<WantedPlace> want;
  std::map<std::string, int> seen;
  for (std::size_t l = 0; l < config.listeners.size(); ++l) {
    const config::Listener& listener = config.listeners[l];
    for (std::size_t b = 0; b < listener.bind.size(); ++b) {
      const config::Bind& bind = listener.bind[b];
      Place place;
      place.listener = l;
      place.bind = b;
      place.listener_name = listener.name;
      place.backlog = bind.backlog;
      place.shared = !bind.address.is_ip();
      place.key = kind_of(bind, listener);
      // Port 0 twice in one listener is two places.
      if (const int nth = seen[place.key]++; nth > 0) place.key += " #" + std::to_string(nth);
      want.push_back({place.key, place.shared ? 1 : workers});
      wishes.push_back({&listener, &bind});
      next.places_.push_back(std::move(place));
    }
  }
  std::vector<PresentPlace> have;
  for (const Place& place : present.places_) have.push_back({place.key, place.sockets.size()});
  const std::vector<PlanStep> steps = plan_places(have, want);

  Opener opener(present, inherited, next.next_id_, diagnostics);
  std::vector<bool> free(steps.size(), true);
  // All probes come before the first socket: one of ours must not stand in the way of the next probe.
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!steps[i].continues) free[i] = opener.probe(*wishes[i].listener, *wishes[i].bind);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Place& place = next.places_[i];
    if (steps[i].continues) {
      place.address = present.places_[*steps[i].continues].address;
      place.sockets = present.places_[*steps[i].continues].sockets;
    }
    if (free[i] && steps[i].to_open > 0)
      opener.open(*wishes[i].listener, *wishes[i].bind, steps[i].to_open, place);
  }
  if (!diagnostics.failed()) return next;
  next.remove_files_not_in(present);
  return std::nullopt;
}

bool SocketSet::has(const std::string& key) const {
  return std::any_of(places_.begin(), places_.end(), [&key](const Place& place) { return place.key == key; });
}

void SocketSet::adopt() const {
  for (const Place& place : places_) {
    // listen(2) on a listening socket changes its backlog. Inherited sockets keep what systemd chose.
    if (place.key.starts_with("systemd:")) continue;
    for (const ListeningSocket& socket : place.sockets) ::listen(socket.fd->get(), place.backlog);
  }
}

void SocketSet::remove_files_not_in(const SocketSet& other) const {
  for (const Place& place : places_) {
    if (place.key.starts_with("systemd:") || other.has(place.key) || place.sockets.empty()) continue;
    if (const std::string path = file_of(place.address); !path.empty()) ::unlink(path.c_str());
  }
}

}  // namespace tlsproxy::server
