// Candidate: a configuration that was read and has passed every check there is.
//
// The one way from a file to something that can be served: -t, the start and each reload take it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/diagnostics.h"
#include "config/files.h"
#include "config/model.h"
#include "server/privileges.h"

namespace tlsproxy::server {

// Which file is read, and where the relative paths in it begin.
struct ConfigPlace {
  std::string file;
  std::string directory;

  // `prefix` may be empty: then paths are relative to the folder of `file`.
  static ConfigPlace of(std::string file, const std::string& prefix);

  // `path` of the configuration, as a path to open.
  [[nodiscard]] std::string resolve(const std::string& path) const;
};

struct Candidate {
  config::Config config;
  Identity identity;
  std::string text;                          // of the file
  std::unique_ptr<config::DiskFiles> files;  // everything that the check read
};

// The file alone: syntax, keys, values. Nothing but the file is read.
std::optional<Candidate> parse_configuration(const ConfigPlace& place, config::Diagnostics& diagnostics);

// The full check: also builds the generation `id`, with certificates and all, and throws it away. Needs
// neither root nor network; opens, binds and starts nothing.
std::optional<Candidate> check_configuration(const ConfigPlace& place, std::uint64_t id,
                                             config::Diagnostics& diagnostics);

}  // namespace tlsproxy::server
