#include "config/fields.h"

#include "base/strings.h"
#include "config/units.h"

namespace tlsproxy::config {
namespace {

std::string_view kind_name(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::scalar:
      return "a single value";
    case Node::Kind::sequence:
      return "a list";
    case Node::Kind::map:
      return "a map";
  }
  return "";
}

std::string quoted(std::string_view text) {
  return "'" + base::escape(text, 64) + "'";
}

std::string join(const std::vector<std::string_view>& words) {
  std::string all;
  for (const std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return all;
}

// "; did you mean 'X'?", or the words to choose from when none is near.
std::string advice(std::string_view word, const std::vector<std::string_view>& words,
                   std::string_view intro) {
  const std::string_view near = base::nearest(word, words);
  if (!near.empty()) return "; did you mean '" + std::string(near) + "'?";
  return "; " + std::string(intro) + join(words);
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

void Item::error_at(Mark mark, const std::string& message) const {
  reading.diagnostics.error(mark, std::string(key) + ": " + message);
}

void Item::warning(const std::string& message) const {
  reading.diagnostics.warning(node.mark, std::string(key) + ": " + message);
}

bool Item::is(Node::Kind kind, std::string_view wanted) const {
  if (node.kind == kind) return true;
  error(std::string(wanted) + " is expected, not " + std::string(kind_name(node.kind)));
  return false;
}

const std::string* Item::scalar(std::string_view wanted) const {
  if (!is(Node::Kind::scalar, wanted)) return nullptr;
  if (node.text.empty()) {
    error(std::string(wanted) + " is expected, not an empty text");
    return nullptr;
  }
  return &node.text;
}

const std::string* Item::bare_scalar(std::string_view wanted) const {
  const std::string* text = scalar(wanted);
  if (text != nullptr && node.quoted) {
    error(std::string(wanted) + " is expected; write " + base::escape(*text, 64) + " without quotes");
    return nullptr;
  }
  return text;
}

const Entry* FieldReader::first_of(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (const Entry* entry = item_.node.find(key)) return entry;
  }
  return nullptr;
}

Mark FieldReader::mark_of(std::string_view key) const {
  const Entry* entry = item_.node.find(key);
  return entry == nullptr ? item_.node.mark : entry->value.mark;
}

void FieldReader::require(std::string_view key) {
  if (!has(key)) error(item_.node.mark, std::string(noun_) + " lacks the key '" + std::string(key) + "'");
}

void FieldReader::report_unknown() {
  for (const Entry& entry : item_.node.entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    std::string message = "unknown key " + quoted(entry.key) + " in " + std::string(noun_);
    const std::size_t colon = entry.key.find(':');
    const std::string_view before = std::string_view(entry.key).substr(0, colon);
    if (colon != std::string::npos && std::find(known_.begin(), known_.end(), before) != known_.end()) {
      message += "; a space must follow the colon";
    } else {
      message += advice(entry.key, known_, "its keys are ");
    }
    error(entry.mark, std::move(message));
  }
}

void Flag::read(const Item& item, bool& value) {
  const std::string* text = item.bare_scalar("true or false");
  if (text == nullptr) return;
  if (*text == "true" || *text == "on" || *text == "yes") {
    value = true;
  } else if (*text == "false" || *text == "off" || *text == "no") {
    value = false;
  } else {
    item.error(quoted(*text) + " is neither true nor false (also on, off, yes, no)");
  }
}

std::optional<Node> Flag::write(bool value) {
  return Node::plain(value ? "true" : "false");
}

void Duration::read(const Item& item, Milliseconds& value) {
  const std::string* text = item.scalar("a duration");
  if (text == nullptr) return;
  const auto duration = parse_duration(*text);
  if (!duration) return item.error(duration.error().message);
  value = *duration;
}

std::optional<Node> Duration::write(Milliseconds value) {
  return Node::plain(duration_text(value));
}

void Line::read(const Item& item, Text& value) {
  const std::string* text = item.scalar("a text");
  if (text == nullptr) return;
  if (has_control(*text)) return item.error(quoted(*text) + " has control characters or line ends");
  value = Text{*text, item.node.mark};
}

std::optional<Node> Line::write(const Text& value) {
  if (value.value.empty()) return std::nullopt;
  return Node::string(value.value);
}

void read_number(const Item& item, std::uint64_t least, std::uint64_t most, std::uint64_t& value) {
  const std::string* text = item.bare_scalar("a whole number");
  if (text == nullptr) return;
  const auto number = parse_number(*text, least, most);
  if (!number) return item.error(number.error().message);
  value = *number;
}

void read_size(const Item& item, std::uint64_t least, std::uint64_t most, std::uint64_t& value) {
  const std::string* text = item.scalar("a size");
  if (text == nullptr) return;
  const auto size = parse_size(*text);
  if (!size) return item.error(size.error().message);
  if (*size < least || *size > most) {
    return item.error(quoted(*text) + " is not between " + size_text(least) + " and " + size_text(most));
  }
  value = *size;
}

Node write_size(std::uint64_t bytes) {
  return Node::plain(size_text(bytes));
}

std::optional<std::size_t> read_word(const Item& item, const std::vector<std::string_view>& words) {
  const std::string* text = item.scalar("one of " + join(words));
  if (text == nullptr) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), *text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  item.error(quoted(*text) + " is not known here" + advice(*text, words, "it is one of "));
  return std::nullopt;
}

}  // namespace tlsproxy::config
