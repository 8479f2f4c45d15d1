#include "tls/loading.h"

#include <charconv>

namespace tlsproxy::tls {
namespace {

std::time_t time_of_check(config::FileSource& files) {
  const auto recorded = files.generated("checked-at", [](const std::string&) -> base::Result<std::string> {
    return std::to_string(std::time(nullptr));
  });
  std::time_t seconds = 0;
  if (!recorded) return std::time(nullptr);
  const char* end = recorded->data() + recorded->size();
  const auto [rest, error] = std::from_chars(recorded->data(), end, seconds);
  return error == std::errc{} && rest == end ? seconds : std::time(nullptr);
}

}  // namespace

Loading::Loading(std::string owner, config::Mark mark, config::FileSource& files,
                 config::Diagnostics& diagnostics)
    : owner_(std::move(owner)),
      mark_(mark),
      files_(&files),
      diagnostics_(&diagnostics),
      checked_at_(time_of_check(files)) {}

bool Loading::is_new(const char* severity, config::Mark& mark, const std::string& message) {
  if (mark.line == 0) mark = mark_;
  return told_.emplace(severity, mark.line, mark.column, message).second;
}

void Loading::error(config::Mark mark, const std::string& message) {
  ++errors_;
  if (is_new("error", mark, message)) diagnostics_->error(mark, owner_ + ": " + message);
}

void Loading::warning(config::Mark mark, const std::string& message) {
  if (is_new("warning", mark, message)) diagnostics_->warning(mark, owner_ + ": " + message);
}

std::optional<std::string> Loading::read(const config::Text& path) {
  auto content = files_->read(path.value);
  if (content) return std::move(*content);
  error(path.mark, content.error().message);
  return std::nullopt;
}

std::optional<std::string> Loading::generated(const std::string& name,
                                              base::Result<std::string> (*make)(const std::string& name),
                                              config::Mark mark) {
  auto content = files_->generated(name, make);
  if (content) return std::move(*content);
  error(mark, content.error().message);
  return std::nullopt;
}

}  // namespace tlsproxy::tls
