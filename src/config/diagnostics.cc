#include "config/diagnostics.h"

#include <algorithm>
#include <tuple>

namespace tlsproxy::config {

void Diagnostics::add(Severity severity, Mark mark, std::string message) {
  // A value that aliases repeat is wrong once.
  const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.mark.line == mark.line && entry.mark.column == mark.column && entry.message == message;
  });
  if (known) return;
  std::size_t& count = severity == Severity::error ? errors_ : warnings_;
  if (++count > kLimit) return;
  entries_.push_back(Entry{severity, mark, std::move(message)});
}

std::vector<std::string> Diagnostics::lines() const {
  std::vector<const Entry*> sorted;
  for (const Entry& entry : entries_) sorted.push_back(&entry);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) {
    return std::tie(a->mark.line, a->mark.column) < std::tie(b->mark.line, b->mark.column);
  });
  std::vector<std::string> lines;
  for (const Entry* entry : sorted) {
    std::string line = file_ + ":";
    if (entry->mark.line > 0) {
      line += std::to_string(entry->mark.line) + ":" + std::to_string(entry->mark.column) + ":";
    }
    line += entry->severity == Severity::error ? " error: " : " warning: ";
    lines.push_back(line + entry->message);
  }
  const auto tell_rest = [&](std::size_t count, const char* severity) {
    if (count <= kLimit) return;
    lines.push_back(file_ + ": " + severity + ": " + std::to_string(count - kLimit) +
                    " more of these are not shown");
  };
  tell_rest(warnings_, "warning");
  tell_rest(errors_, "error");
  return lines;
}

}  // namespace tlsproxy::config
