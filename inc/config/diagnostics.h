// Diagnostics: everything that is wrong with a configuration, collected so that one run names it all.
//
// The loader and the checks behind it (certificates, routes, addresses) report into the same list;
// whoever asked decides what to do with it. Bounded: after kLimit errors (and as many warnings) the rest
// is only counted. The same message about the same place is kept once.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/model.h"

namespace tlsproxy::config {

class Diagnostics {
 public:
  enum class Severity { warning, error };
  struct Entry {
    Severity severity;
    Mark mark;
    std::string message;
  };
  static constexpr std::size_t kLimit = 100;

  // `file` is the name shown before every place.
  explicit Diagnostics(std::string file) : file_(std::move(file)) {}

  void error(Mark mark, std::string message) { add(Severity::error, mark, std::move(message)); }
  void warning(Mark mark, std::string message) { add(Severity::warning, mark, std::move(message)); }

  [[nodiscard]] bool failed() const { return errors_ > 0; }
  [[nodiscard]] std::size_t errors() const { return errors_; }
  // Another error would only be counted: no need to search for a suggestion.
  [[nodiscard]] bool full() const { return errors_ >= kLimit; }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const std::string& file() const { return file_; }

  // "file:line:column: error: message", one string per entry, in the order of their places; without a
  // place "file: error: message". The last ones tell how many were left out, if any were.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  void add(Severity severity, Mark mark, std::string message);

  std::string file_;
  std::vector<Entry> entries_;
  std::size_t errors_ = 0;
  std::size_t warnings_ = 0;
};

}  // namespace tlsproxy::config
