#include "server/log_files.h"

#include <fcntl.h>

#include "log/log.h"

namespace tlsproxy::server {
namespace {

SharedFd open_one(const config::Text& path, const ConfigPlace& place, config::Diagnostics& diagnostics) {
  const bool standard = path.value == "stderr" || path.value == "stdout";
  auto fd = log::open_target(standard ? path.value : place.resolve(path.value));
  if (fd) return share(std::move(*fd));
  diagnostics.error(path.mark, "cannot open the log file " + fd.error().message);
  return nullptr;
}

os::Fd copy_of(const SharedFd& fd) {
  return os::Fd(fd != nullptr ? ::fcntl(fd->get(), F_DUPFD_CLOEXEC, 3) : -1);
}

}  // namespace

std::optional<LogFiles> LogFiles::open(const config::Config& config, const ConfigPlace& place,
                                       config::Diagnostics& diagnostics) {
  LogFiles files;
  files.error = open_one(config.log.path, place, diagnostics);
  if (config.log.access) files.access = open_one(config.log.access->path, place, diagnostics);
  const bool complete = files.error != nullptr && (!config.log.access || files.access != nullptr);
  if (!complete) return std::nullopt;
  return files;
}

void use_log_files(const LogFiles& files) {
  os::Fd error = copy_of(files.error);
  os::Fd access = copy_of(files.access);
  if (!error || (files.access != nullptr && !access)) {
    log::error("no descriptor is left to switch to the new log files: the old ones stay in use");
    return;
  }
  log::set_error_target(std::move(error));
  log::set_access_target(std::move(access));
}

void use_log_level(config::LogLevel level) {
  switch (level) {
    case config::LogLevel::debug:
      return log::set_level(spdlog::level::debug);
    case config::LogLevel::info:
      return log::set_level(spdlog::level::info);
    case config::LogLevel::warn:
      return log::set_level(spdlog::level::warn);
    case config::LogLevel::error:
      return log::set_level(spdlog::level::err);
    case config::LogLevel::off:
      return log::set_level(spdlog::level::off);
  }
}

}  // namespace tlsproxy::server
