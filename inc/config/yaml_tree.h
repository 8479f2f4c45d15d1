// The YAML tree: one document as values with their places, and the same tree written as text.
//
// The only code that knows yaml-cpp. It takes a subset of YAML on purpose: what a reader of the file
// could take for something else is an error here (a key given twice, merge keys, tabs in the
// indentation, unknown tags, a second document), so that what stands in the file is what is meant.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/model.h"

namespace tlsproxy::config {

struct Entry;

struct Node {
  enum class Kind { null, scalar, sequence, map };

  Kind kind = Kind::null;
  Mark mark;  // of an alias: where the alias stands; what is inside keeps the place of its anchor
  // Quoted, a block text, or tagged !!str: a text whatever it looks like. When written: quotes are
  // put around it where YAML could take the bare text for something else.
  bool quoted = false;
  std::string text;            // of a scalar
  std::vector<Node> items;     // of a sequence
  std::vector<Entry> entries;  // of a map, in the order of the file

  static Node plain(std::string text);
  static Node string(std::string text);
  static Node sequence();
  static Node map();

  // The entry of that key, or null.
  [[nodiscard]] const Entry* find(std::string_view key) const;
};

struct Entry {
  std::string key;
  Mark mark;
  Node value;
};

// Limits that bound time and memory for any text.
inline constexpr std::size_t kLargestYaml = 1024 * 1024;    // bytes; yaml-cpp needs up to 240 times that
inline constexpr std::size_t kMostValues = 200'000;         // nodes, aliases expanded
inline constexpr std::size_t kMostText = 8 * kLargestYaml;  // bytes of keys and scalars, aliases expanded
inline constexpr int kDeepest = 32;                         // maps and sequences inside each other

// Reads the one document in `text` (UTF-8, with or without a byte order mark, lines ended by LF or CRLF).
// Reports whatever is wrong, with its place, and then returns nothing. Never throws.
std::optional<Node> parse_yaml(std::string_view text, Diagnostics& diagnostics);

// `root` in block style, which parse_yaml reads back to an equal tree (but for marks and quotes).
std::string write_yaml(const Node& root);

}  // namespace tlsproxy::config
