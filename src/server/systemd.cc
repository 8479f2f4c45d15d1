#include "server/systemd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>

namespace tlsproxy::server::systemd {
namespace {

void notify(const std::string& state) {
  sd_notify(0, state.c_str());
}

}  // namespace

void ready(const std::string& status) {
  notify("READY=1\nSTATUS=" + status);
}

void reloading() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t microseconds = std::int64_t{now.tv_sec} * 1000000 + now.tv_nsec / 1000;
  notify("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds));
}

void stopping() {
  notify("STOPPING=1");
}

void watchdog() {
  notify("WATCHDOG=1");
}

std::optional<std::chrono::milliseconds> watchdog_limit() {
  std::uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) <= 0) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(microseconds / 1000));
}

base::Result<InheritedSockets> take_sockets() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(1, &names);
  if (count < 0) return base::system_failure("cannot take the sockets that systemd opened", -count);
  InheritedSockets sockets;
  std::string unusable;
  for (int i = 0; i < count; ++i) {
    const int fd = SD_LISTEN_FDS_START + i;
    SharedFd socket = share(os::Fd(fd));
    if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0) unusable = names[i];
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    sockets[names[i]].push_back(std::move(socket));
  }
  for (int i = 0; i < count; ++i) std::free(names[i]);
  std::free(names);
  if (!unusable.empty()) {
    return base::failure("the inherited descriptor '" + unusable + "' is no listening stream socket");
  }
  return sockets;
}

}  // namespace tlsproxy::server::systemd
