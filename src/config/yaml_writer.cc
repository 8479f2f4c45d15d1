// write_yaml: the tree as text. Block style, two spaces a level, lists of bare scalars on one line.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/strings.h"
#include "config/yaml_tree.h"

namespace tlsproxy::config {
namespace {

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Whether every YAML reader, not only ours, takes the bare text for this very string.
bool stands_bare(std::string_view text) {
  constexpr std::string_view kWords[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  if (text.empty() || text.back() == ':') return false;
  const bool begins =
      (text[0] >= 'A' && text[0] <= 'Z') || (text[0] >= 'a' && text[0] <= 'z') || text[0] == '/';
  if (!begins || std::count(std::begin(kWords), std::end(kWords), base::to_lower(text)) > 0) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_alnum(c) || std::string_view("_./-:@").find(c) != std::string_view::npos;
  });
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.append({'\\', c});
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += "\\x" + base::to_hex(std::string_view(&c, 1));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string scalar_text(const Node& node) {
  if (node.kind == Node::Kind::null) return "null";
  return node.quoted && !stands_bare(node.text) ? quote(node.text) : node.text;
}

bool is_scalar(const Node& node) {
  return node.kind == Node::Kind::scalar || node.kind == Node::Kind::null;
}

bool fits_one_line(const Node& node) {
  if (node.kind == Node::Kind::map) return node.entries.empty();
  return is_scalar(node) || std::all_of(node.items.begin(), node.items.end(), is_scalar);
}

std::string one_line(const Node& node) {
  if (is_scalar(node)) return scalar_text(node);
  if (node.kind == Node::Kind::map) return "{}";
  std::string line = "[";
  for (const Node& item : node.items) line += (line.size() > 1 ? ", " : "") + scalar_text(item);
  return line + "]";
}

// Writes `node` from the current column on, which is `indent`; ends with a line feed.
void write(std::string& out, const Node& node, std::size_t indent) {
  if (fits_one_line(node)) {
    out += one_line(node) + "\n";
    return;
  }
  bool first = true;
  const auto begin_line = [&] {
    if (!first) out.append(indent, ' ');
    first = false;
  };
  for (const Node& item : node.items) {
    begin_line();
    out += "- ";
    write(out, item, indent + 2);
  }
  for (const Entry& entry : node.entries) {
    begin_line();
    out += stands_bare(entry.key) ? entry.key : quote(entry.key);
    out += ":";
    if (fits_one_line(entry.value)) {
      out += " " + one_line(entry.value) + "\n";
    } else {
      out += "\n";
      out.append(indent + 2, ' ');
      write(out, entry.value, indent + 2);
    }
  }
}

}  // namespace

std::string write_yaml(const Node& root) {
  std::string out;
  write(out, root, 0);
  return out;
}

}  // namespace tlsproxy::config
