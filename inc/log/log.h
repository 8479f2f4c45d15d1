// The error log and the access log: two spdlog loggers that write whole lines to a descriptor.
//
// The sinks hold descriptors, not paths: the master opens (and on USR1 reopens) the files and hands the
// descriptors to the workers, which need no access to the folder. A line is one write(2), so lines of
// several processes do not mix.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "os/fd.h"

namespace tlsproxy::log {

// Makes both loggers, the error log on stderr at level info and the access log off. Call once, before
// anything logs.
void init();

// Opens "stderr", "stdout" or a file (created 0640, appended to). The caller owns the descriptor.
base::Result<os::Fd> open_target(const std::string& path);

// Points a log at `fd` from the next line on; takes the descriptor. Without one the access log is off.
void set_error_target(os::Fd fd);
void set_access_target(os::Fd fd);
void set_level(spdlog::level::level_enum level);

// Written into every line of this process: "master", "worker 0".
void set_process_name(std::string name);

// Whether access lines go anywhere; when not, callers need not make them.
bool access_enabled();
void access(std::string_view line);

// Which level for what: debug, a peer's misbehaviour and each step of a session; info, what an operator
// did or should see once (start, reload, a worker's end); warn, a fault outside that costs sessions; error,
// a fault of ours or of the set-up that needs a hand.
template <class... Args>
void debug(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::debug(format, std::forward<Args>(args)...);
}
template <class... Args>
void info(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <class... Args>
void error(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}

}  // namespace tlsproxy::log
