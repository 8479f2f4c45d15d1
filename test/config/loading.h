// What the tests of this floor share: a text loaded, and what was said about it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/model.h"
#include "config/yaml_loader.h"

namespace tlsproxy::config {

struct Loaded {
  Config config;
  Diagnostics diagnostics{"x"};
  std::vector<std::string> lines;
};

inline Loaded load(std::string_view text) {
  Loaded loaded;
  loaded.config = load_yaml(text, loaded.diagnostics);
  loaded.lines = loaded.diagnostics.lines();
  return loaded;
}

// All lines, for messages of failed tests and for searches.
inline std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Whether some line begins with this place and has this part: "x:2:7: error: " and "no unit".
inline bool says(const std::vector<std::string>& lines, std::string_view begin, std::string_view part) {
  for (const std::string& line : lines) {
    if (line.starts_with(begin) && contains(line, part)) return true;
  }
  return false;
}

}  // namespace tlsproxy::config
