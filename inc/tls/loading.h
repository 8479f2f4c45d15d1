// Loading: one check of the TLS files that a listener or a backend names.
//
// Carries where files come from, whom to tell what is wrong with them (always with whose file it is),
// and the time that validity is judged by. Policies inherit from each other, so one fault would be met
// several times: each is told once.
#pragma once

#include <cstddef>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "config/diagnostics.h"
#include "config/files.h"
#include "config/model.h"

namespace tlsproxy::tls {

class Loading {
 public:
  // `owner` begins every message: "listener 'web'". What has no place of its own is reported at `mark`.
  Loading(std::string owner, config::Mark mark, config::FileSource& files, config::Diagnostics& diagnostics);

  void error(config::Mark mark, const std::string& message);
  void warning(config::Mark mark, const std::string& message);
  // How many errors were met, those told before included.
  [[nodiscard]] std::size_t errors() const { return errors_; }

  // The content of a file, or nothing after it was reported why not.
  std::optional<std::string> read(const config::Text& path);
  // FileSource::generated, with the same promise.
  std::optional<std::string> generated(const std::string& name,
                                       base::Result<std::string> (*make)(const std::string& name),
                                       config::Mark mark);

  // When the configuration was checked first. The same in the worker that is started long after the
  // check, so that a certificate that ran out meanwhile does not keep the whole worker from starting.
  [[nodiscard]] std::time_t checked_at() const { return checked_at_; }

 private:
  bool is_new(const char* severity, config::Mark& mark, const std::string& message);

  std::string owner_;
  config::Mark mark_;
  config::FileSource* files_;
  config::Diagnostics* diagnostics_;
  std::time_t checked_at_;
  std::size_t errors_ = 0;
  std::set<std::tuple<std::string, int, int, std::string>> told_;
};

}  // namespace tlsproxy::tls
