#include "server/candidate.h"

#include <unistd.h>

#include <filesystem>

#include "config/yaml_loader.h"
#include "relay/generation.h"

namespace tlsproxy::server {

ConfigPlace ConfigPlace::of(std::string file, const std::string& prefix) {
  ConfigPlace place;
  place.directory = prefix.empty() ? std::filesystem::path(file).parent_path().string() : prefix;
  if (place.directory.empty()) place.directory = ".";
  place.file = std::move(file);
  return place;
}

std::string ConfigPlace::resolve(const std::string& path) const {
  return (std::filesystem::path(directory) / path).string();
}

std::optional<Candidate> parse_configuration(const ConfigPlace& place, config::Diagnostics& diagnostics) {
  auto text = config::DiskFiles(".").read(place.file);
  if (!text) {
    diagnostics.error({}, text.error().message);
    return std::nullopt;
  }
  Candidate candidate;
  candidate.text = std::move(*text);
  candidate.config = config::load_yaml(candidate.text, diagnostics);
  if (diagnostics.failed()) return std::nullopt;
  return candidate;
}

std::optional<Candidate> check_configuration(const ConfigPlace& place, std::uint64_t id,
                                             config::Diagnostics& diagnostics) {
  auto candidate = parse_configuration(place, diagnostics);
  if (!candidate) return std::nullopt;
  if (auto identity = find_identity(candidate->config, ::geteuid(), diagnostics)) {
    candidate->identity = std::move(*identity);
  }
  candidate->files = std::make_unique<config::DiskFiles>(place.directory);
  relay::Generation::make(id, candidate->config, *candidate->files, diagnostics);
  if (diagnostics.failed()) return std::nullopt;
  return candidate;
}

}  // namespace tlsproxy::server
