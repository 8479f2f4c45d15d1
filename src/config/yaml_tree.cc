#include "config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/strings.h"

namespace tlsproxy::config {
namespace {

// --- before yaml-cpp sees it ---------------------------------------------------------------------

struct Utf8Char {
  std::size_t length = 0;  // 0: not well formed
  char32_t code = 0;
};

// One character by RFC 3629: shortest form only, no surrogates, nothing above U+10FFFF.
Utf8Char decode_utf8(std::string_view rest) {
  const auto first = static_cast<unsigned char>(rest[0]);
  if (first < 0x80) return {1, first};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || rest.size() < length) return {};
  char32_t code = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(rest[i]);
    if ((byte & 0xc0U) != 0x80) return {};
    code = (code << 6) | (byte & 0x3fU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {length, code};
}

std::string hex_of(char c) {
  return "0x" + base::to_hex(std::string_view(&c, 1));
}

// The text with LF line ends and without byte order mark, or nothing after reporting the first byte
// that no text file has, or every tab that indents. Columns do not change by it.
std::optional<std::string> clean_text(std::string_view text, Diagnostics& diagnostics) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::string clean;
  clean.reserve(text.size());
  Mark mark{1, 1};
  Mark tab;  // of this line's indentation
  bool indentation = true;
  bool sound = true;
  while (!text.empty()) {
    const char c = text[0];
    const Utf8Char character = decode_utf8(text);
    if (character.length == 0) {
      diagnostics.error(mark, "byte " + hex_of(c) + " is not UTF-8 text");
      return std::nullopt;
    }
    if (c == '\r' && !text.starts_with("\r\n")) {
      diagnostics.error(mark, "a carriage return without a line feed: lines end by LF or CRLF");
      return std::nullopt;
    }
    if ((character.code < 0x20 && c != '\t' && c != '\n' && c != '\r') || character.code == 0x7f) {
      diagnostics.error(mark,
                        "control byte " + hex_of(c) + " in the text; \"\\x..\" in double quotes writes it");
      return std::nullopt;
    }
    if (c == '\t' && indentation && tab.line == 0) tab = mark;
    if (indentation && c != ' ' && c != '\t') {
      indentation = false;
      if (tab.line != 0 && c != '\n' && c != '\r' && c != '#') {
        diagnostics.error(tab, "a tab in the indentation: indent by spaces");
        sound = false;
      }
    }
    if (c != '\r') clean.append(text.substr(0, character.length));
    mark.column += static_cast<int>(character.length);
    if (c == '\n') {
      mark = Mark{mark.line + 1, 1};
      tab = Mark{};
      indentation = true;
    }
    text.remove_prefix(character.length);
  }
  if (!sound) return std::nullopt;
  return clean;
}

// --- from events to the tree ---------------------------------------------------------------------

// Ends the parsing from inside an event: the reason has been reported.
struct Stop {};

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

struct Weight {
  std::size_t values = 0;
  std::size_t bytes = 0;
  int height = 0;
};

Weight weigh(const Node& node) {
  Weight total{1, node.text.size(), 0};
  const auto add = [&total](const Node& child) {
    const Weight weight = weigh(child);
    total.values += weight.values;
    total.bytes += weight.bytes;
    total.height = std::max(total.height, weight.height);
  };
  for (const Node& item : node.items) add(item);
  for (const Entry& entry : node.entries) {
    add(entry.value);
    total.bytes += entry.key.size();
  }
  if (node.kind == Node::Kind::sequence || node.kind == Node::Kind::map) ++total.height;
  return total;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, Diagnostics& diagnostics) : text_(text), diagnostics_(diagnostics) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    last_ = mark;
    if (++documents_ == 1) return;
    // yaml-cpp also ends a document where a line is indented less than its first one.
    const std::string_view before = text_.substr(0, position(mark));
    const bool marked = at(mark).starts_with("---") || before.find("\n...") != std::string_view::npos ||
                        before.starts_with("...");
    stop(mark, marked ? "a second document begins here; a configuration is one document"
                      : "this line is indented less than the first one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    const std::string_view rest = at(mark);
    const bool written = rest.starts_with('~') || rest.starts_with('!') || rest.starts_with('&') ||
                         base::to_lower(rest.substr(0, 4)) == "null";
    node.mark = written ? place(mark) : place_of_nothing(mark);
    last_ = mark;
    add(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    last_ = mark;
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) stop(mark, "an alias inside the value that it stands for");
    const Anchored& anchored = known->second;
    if (static_cast<int>(frames_.size()) + anchored.weight.height > kDeepest) too_deep(place(mark));
    // Before the copy is made: an alias of aliases of aliases must cost nothing.
    pay(anchored.weight, place(mark));
    Node copy = anchored.node;
    copy.mark = place(mark);
    add(std::move(copy), 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    last_ = mark;
    Node node;
    node.kind = Node::Kind::scalar;
    node.mark = place(mark);
    node.text = value;
    node.quoted = tag == "!" || tag == std::string(kTagPrefix) + "str";
    if (!node.quoted && tag != "?" && tag != std::string(kTagPrefix) + "int" &&
        tag != std::string(kTagPrefix) + "bool") {
      refuse_tag(mark, tag);
    }
    pay({1, value.size(), 0}, node.mark);
    add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(mark, tag, "seq", anchor, Node::Kind::sequence);
    frames_.back().flow = style == YAML::EmitterStyle::Flow;
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, "map", anchor, Node::Kind::map);
  }
  void OnMapEnd() override { close(); }

  [[nodiscard]] std::optional<Node>& root() { return root_; }

  // Where the scanner failed, as far as events tell: it fails somewhere after this.
  [[nodiscard]] std::size_t last_position() const { return position(last_); }

 private:
  struct Frame {
    Node node;
    YAML::anchor_t anchor = 0;
    bool flow = false;
    std::optional<Text> key;             // of a map: read, its value is to come
    std::map<std::string, Mark> places;  // of a map's keys
  };
  struct Anchored {
    Node node;
    Weight weight;
  };

  [[nodiscard]] static Mark place(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }
  [[nodiscard]] std::size_t position(const YAML::Mark& mark) const {
    return std::min(static_cast<std::size_t>(std::max(mark.pos, 0)), text_.size());
  }
  [[nodiscard]] std::string_view at(const YAML::Mark& mark) const { return text_.substr(position(mark)); }

  [[noreturn]] void stop(Mark mark, std::string message) {
    diagnostics_.error(mark, std::move(message));
    throw Stop();
  }
  [[noreturn]] void stop(const YAML::Mark& mark, std::string message) {
    stop(place(mark), std::move(message));
  }
  [[noreturn]] void too_deep(Mark mark) {
    stop(mark, "more than " + std::to_string(kDeepest) + " lists and maps inside each other");
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    diagnostics_.error(place(mark),
                       "the tag '" + base::escape(tag, 64) + "' is not known here; leave it out");
  }

  // A value that is not there has yaml-cpp's mark of whatever follows; the key or the list tells more.
  [[nodiscard]] Mark place_of_nothing(const YAML::Mark& mark) const {
    if (frames_.empty()) return place(mark);
    const Frame& parent = frames_.back();
    if (parent.node.kind == Node::Kind::map) return parent.key ? parent.key->mark : place(mark);
    return parent.flow ? place(mark) : parent.node.mark;
  }

  void pay(const Weight& weight, Mark mark) {
    values_ += weight.values;
    bytes_ += weight.bytes;
    if (values_ > kMostValues) {
      stop(mark, "more than " + std::to_string(kMostValues) + " values by here, aliases expanded");
    }
    if (bytes_ > kMostText) {
      stop(mark, "more than " + std::to_string(kMostText) + " bytes by here, aliases expanded");
    }
  }

  void open(const YAML::Mark& mark, const std::string& tag, std::string_view core, YAML::anchor_t anchor,
            Node::Kind kind) {
    last_ = mark;
    if (frames_.size() >= static_cast<std::size_t>(kDeepest)) too_deep(place(mark));
    if (tag != "?" && tag != std::string(kTagPrefix).append(core)) refuse_tag(mark, tag);
    pay({1, 0, 0}, place(mark));
    Frame frame;
    frame.node.kind = kind;
    frame.node.mark = place(mark);
    frame.anchor = anchor;
    frames_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    add(std::move(frame.node), frame.anchor);
  }

  // A complete value takes its place: an item, a key, the value of the last key, or the whole document.
  void add(Node node, YAML::anchor_t anchor) {
    if (anchor != 0) {
      const Weight weight = weigh(node);
      pay(weight, node.mark);  // the copy kept for aliases
      anchors_.insert_or_assign(anchor, Anchored{node, weight});
    }
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& parent = frames_.back();
    if (parent.node.kind == Node::Kind::sequence) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      parent.key = as_key(node);
    } else {
      add_entry(parent, std::move(node));
    }
  }

  Text as_key(const Node& node) {
    if (node.kind == Node::Kind::null) diagnostics_.error(node.mark, "a key is missing, or is null");
    if (node.kind == Node::Kind::sequence || node.kind == Node::Kind::map) {
      diagnostics_.error(node.mark,
                         "a list or map cannot be a key; text that begins with '[' or '{' is quoted");
    }
    if (node.kind == Node::Kind::scalar && !node.quoted && node.text == "<<") {
      diagnostics_.error(node.mark, "merge keys ('<<') are not known here; write the keys out");
    }
    return Text{node.text, node.mark};
  }

  void add_entry(Frame& parent, Node value) {
    const Text key = *std::exchange(parent.key, std::nullopt);
    const auto [known, fresh] = parent.places.emplace(key.value, key.mark);
    if (!fresh) {
      diagnostics_.error(key.mark, "the key '" + base::escape(key.value, 64) +
                                       "' is given twice; first at line " +
                                       std::to_string(known->second.line) + ", column " +
                                       std::to_string(known->second.column));
      return;
    }
    parent.node.entries.push_back(Entry{key.value, key.mark, std::move(value)});
  }

  std::string_view text_;
  Diagnostics& diagnostics_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::optional<Node> root_;
  YAML::Mark last_;
  std::size_t values_ = 0;
  std::size_t bytes_ = 0;
  int documents_ = 0;
};

// --- yaml-cpp's complaints, in words that help ----------------------------------------------------

// Where the quote begins that nothing closes: yaml-cpp only knows that it met the end. Looks for a quote
// at the start of a value, from `from` on.
std::size_t find_open_quote(std::string_view text, std::size_t from) {
  for (std::size_t i = from; i < text.size(); ++i) {
    const char before = i == 0 ? '\n' : text[i - 1];
    const bool begins = std::string_view(" \n[{,:").find(before) != std::string_view::npos;
    if (text[i] == '#' && begins) i = std::min(text.find('\n', i), text.size() - 1);
    if (!begins || (text[i] != '"' && text[i] != '\'')) continue;
    const std::size_t opening = i;
    const char quote = text[i++];
    while (i < text.size() && text[i] != quote) i += quote == '"' && text[i] == '\\' ? 2U : 1U;
    if (i >= text.size()) return opening;
  }
  return from;
}

Mark mark_at(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, position);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(position - line_start) + 1};
}

void report_syntax(const YAML::ParserException& problem, std::string_view text, std::size_t last_position,
                   Diagnostics& diagnostics) {
  namespace msg = YAML::ErrorMsg;
  const std::string& what = problem.msg;
  const auto position = std::min(static_cast<std::size_t>(std::max(problem.mark.pos, 0)), text.size());
  const Mark mark{problem.mark.line + 1, problem.mark.column + 1};
  if (what == msg::DOC_IN_SCALAR || what == msg::EOF_IN_SCALAR) {
    const std::size_t quote = find_open_quote(text, last_position);
    diagnostics.error(mark_at(text, quote), "a quoted text is not closed");
  } else if (what == msg::MAP_VALUE) {
    diagnostics.error(mark,
                      "a ':' is out of place: text with ': ' inside or ':' at its end must be quoted, and "
                      "keys of one map stand in one column");
  } else if (what == msg::UNKNOWN_ANCHOR || what == msg::ALIAS_NOT_FOUND || what == msg::CHAR_IN_ALIAS ||
             what == msg::ALIAS_CONTENT) {
    diagnostics.error(mark,
                      "an alias of an anchor that is not defined above; text that begins with '*' is quoted, "
                      "as in \"*.example.com\"");
  } else if (what == msg::UNKNOWN_TOKEN) {
    const char c = position < text.size() ? text[position] : ' ';
    diagnostics.error(mark,
                      "text that begins with '" + base::escape(std::string_view(&c, 1)) + "' must be quoted");
  } else if (what == msg::END_OF_MAP || what == msg::END_OF_SEQ) {
    diagnostics.error(mark,
                      "text after a value that is complete; text that begins with '[', '{' or a quote is "
                      "quoted as a whole, as in \"[::1]:443\"");
  } else if (what == msg::END_OF_MAP_FLOW || what == msg::END_OF_SEQ_FLOW) {
    diagnostics.error(mark, what == msg::END_OF_MAP_FLOW ? "a '{' is not closed by '}', or a ',' is missing"
                                                         : "a '[' is not closed by ']', or a ',' is missing");
  } else if (what == msg::BLOCK_ENTRY) {
    diagnostics.error(
        mark, "a '-' is out of place: the items of a list begin on lines of their own, in one column");
  } else {
    diagnostics.error(mark, "YAML: " + base::escape(what));
  }
}

}  // namespace

Node Node::plain(std::string text) {
  Node node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  return node;
}

Node Node::string(std::string text) {
  Node node = plain(std::move(text));
  node.quoted = true;
  return node;
}

Node Node::sequence() {
  Node node;
  node.kind = Kind::sequence;
  return node;
}

Node Node::map() {
  Node node;
  node.kind = Kind::map;
  return node;
}

const Entry* Node::find(std::string_view key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

std::optional<Node> parse_yaml(std::string_view text, Diagnostics& diagnostics) {
  if (text.size() > kLargestYaml) {
    diagnostics.error({1, 1}, "larger than " + std::to_string(kLargestYaml) + " bytes");
    return std::nullopt;
  }
  const auto clean = clean_text(text, diagnostics);
  if (!clean) return std::nullopt;

  const std::size_t errors_before = diagnostics.errors();
  TreeBuilder builder(*clean, diagnostics);
  try {
    // The end of the document is written out because yaml-cpp 0.7 takes a quote that is still open at the
    // end of the file for closed there, if the file ends with a line feed.
    std::istringstream in(*clean + (clean->empty() || clean->back() == '\n' ? "...\n" : "\n...\n"));
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return std::nullopt;
  } catch (const YAML::ParserException& problem) {
    report_syntax(problem, *clean, builder.last_position(), diagnostics);
    return std::nullopt;
  } catch (const std::exception& problem) {
    diagnostics.error({1, 1}, "YAML: " + base::escape(problem.what()));
    return std::nullopt;
  }
  if (diagnostics.errors() > errors_before) return std::nullopt;
  if (!builder.root() || builder.root()->kind == Node::Kind::null) {
    diagnostics.error({1, 1}, "there is no configuration in this file");
    return std::nullopt;
  }
  return std::move(builder.root());
}

}  // namespace tlsproxy::config
