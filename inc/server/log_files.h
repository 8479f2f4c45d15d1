// LogFiles: where a generation's lines go, opened by the master and handed to every worker.
#pragma once

#include <optional>

#include "config/diagnostics.h"
#include "config/model.h"
#include "server/candidate.h"
#include "server/message.h"

namespace tlsproxy::server {

struct LogFiles {
  SharedFd error;
  SharedFd access;  // null: no access log

  // Opens (creates, appends to) what `config.log` names; reports what cannot be opened.
  static std::optional<LogFiles> open(const config::Config& config, const ConfigPlace& place,
                                      config::Diagnostics& diagnostics);
};

// Points this process's logs at the files, which stay the caller's too. Keeps the old targets when out of
// descriptors.
void use_log_files(const LogFiles& files);

void use_log_level(config::LogLevel level);

}  // namespace tlsproxy::server
