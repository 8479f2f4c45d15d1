// What systemd is told and what it gives: state messages, the watchdog, sockets opened before we ran.
// Without systemd every call is a harmless no-op.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/message.h"

namespace tlsproxy::server::systemd {

// `status` is the line that systemctl status shows.
void ready(const std::string& status);
void reloading();
void stopping();
void watchdog();

// WATCHDOG_USEC, when this process is the one to answer it.
std::optional<std::chrono::milliseconds> watchdog_limit();

// The inherited listening sockets by name (sd_listen_fds(3)), non-blocking; takes them out of the
// environment. A name may have several. An error when one is no listening stream socket.
using InheritedSockets = std::map<std::string, std::vector<SharedFd>, std::less<>>;
base::Result<InheritedSockets> take_sockets();

}  // namespace tlsproxy::server::systemd
