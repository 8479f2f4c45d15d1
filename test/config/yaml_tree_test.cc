#include "config/yaml_tree.h"

#include <chrono>
#include <string>

#include "config/loading.h"
#include "support/catch.h"

using namespace tlsproxy::config;

namespace {

struct Parsed {
  std::optional<Node> root;
  std::vector<std::string> lines;
};

Parsed parse(std::string_view text) {
  Diagnostics diagnostics("x");
  Parsed parsed;
  parsed.root = parse_yaml(text, diagnostics);
  parsed.lines = diagnostics.lines();
  return parsed;
}

// The only complaint about `text`.
std::string complaint(std::string_view text) {
  const Parsed parsed = parse(text);
  if (parsed.root) return "accepted";
  return joined(parsed.lines);
}

Node tree(std::string_view text) {
  Parsed parsed = parse(text);
  INFO(text);
  INFO(joined(parsed.lines));
  REQUIRE(parsed.root);
  return *parsed.root;
}

bool same(const Node& a, const Node& b) {
  if (a.kind != b.kind || a.text != b.text || a.items.size() != b.items.size() ||
      a.entries.size() != b.entries.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!same(a.items[i], b.items[i])) return false;
  }
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    if (a.entries[i].key != b.entries[i].key || !same(a.entries[i].value, b.entries[i].value)) return false;
  }
  return true;
}

std::string repeat(std::string_view part, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += part;
  return all;
}

}  // namespace

TEST_CASE("every key and value knows its place", "[yaml_tree]") {
  const Node root = tree("a: 1\nlist:\n  - x\n  - {k: \"v\"}\n");
  CHECK(root.entries[0].mark.line == 1);
  CHECK(root.entries[0].value.mark.column == 4);
  const Node& list = root.entries[1].value;
  CHECK(list.mark.line == 3);
  CHECK(list.mark.column == 3);
  CHECK(list.items[0].mark.column == 5);
  CHECK(list.items[1].entries[0].mark.column == 6);
  CHECK(list.items[1].entries[0].value.mark.line == 4);
  CHECK(list.items[1].entries[0].value.mark.column == 9);
}

TEST_CASE("a text knows whether it was quoted", "[yaml_tree]") {
  const Node root = tree("a: b\nc: 'd'\ne: \"f\"\ng: |\n  h\ni: !!str 5\nj: !!int 5\n");
  CHECK_FALSE(root.find("a")->value.quoted);
  CHECK(root.find("c")->value.quoted);
  CHECK(root.find("e")->value.quoted);
  CHECK(root.find("g")->value.quoted);
  CHECK(root.find("g")->value.text == "h\n");
  CHECK(root.find("i")->value.quoted);
  CHECK_FALSE(root.find("j")->value.quoted);
  CHECK(root.find("k") == nullptr);
}

TEST_CASE("a value that is not there has the place of its key or list", "[yaml_tree]") {
  const Node root = tree("a:\n\n\nb: ~\nc:\n  -\n  - x\nd: [1, , 2]\ne: null\n");
  CHECK(root.find("a")->value.kind == Node::Kind::null);
  CHECK(root.find("a")->value.mark.line == 1);
  CHECK(root.find("b")->value.mark.column == 4);
  CHECK(root.find("c")->value.items[0].kind == Node::Kind::null);
  CHECK(root.find("c")->value.items[0].mark.line == 6);
  CHECK(root.find("d")->value.items[1].mark.line == 8);
  CHECK(root.find("e")->value.kind == Node::Kind::null);
}

TEST_CASE("byte order mark and CRLF change nothing, not even a column", "[yaml_tree]") {
  const Node root = tree(
      "\xef\xbb\xbf"
      "a: 1\r\nb: \"x\"\r\nt: |\r\n  one\r\n  two\r\n");
  CHECK(root.find("a")->mark.column == 1);
  CHECK(root.find("a")->value.text == "1");
  CHECK(root.find("b")->mark.line == 2);
  CHECK(root.find("b")->value.mark.column == 4);
  CHECK(root.find("t")->value.text == "one\ntwo\n");
}

TEST_CASE("a file without configuration is an error at its start", "[yaml_tree]") {
  for (const char* text : {"", "\n\n", "# only a comment\n", "# comment without line end", "---\n",
                           "---\n...\n", "...\n", "~\n", "null", "\xef\xbb\xbf", " ", "\r\n"}) {
    INFO(text);
    CHECK(complaint(text) == "x:1:1: error: there is no configuration in this file\n");
  }
}

TEST_CASE("a second document is an error where it begins", "[yaml_tree]") {
  CHECK(contains(complaint("a: 1\n---\nb: 2\n"), "x:2:1: error: a second document"));
  CHECK(contains(complaint("a: 1\n---\n"), "x:2:1: error: a second document"));
  CHECK(contains(complaint("a: 1\n...\nb: 2\n"), "x:3:1: error: a second document"));
  CHECK(complaint("---\na: 1\n...\n") == "accepted");
  CHECK(complaint("---\na: 1\n...\n# end\n") == "accepted");
  CHECK(complaint("%YAML 1.2\n---\na: 1\n") == "accepted");
}

TEST_CASE("a line indented less than the first one is no second document", "[yaml_tree]") {
  CHECK(contains(complaint("  a: 1\n b: 2\n"), "x:2:2: error: this line is indented less"));
  CHECK(contains(complaint("  a: 1\nb: 2\n"), "x:2:1: error: this line is indented less"));
}

TEST_CASE("a key given twice in one map names the first place", "[yaml_tree]") {
  CHECK(contains(complaint("a: 1\nb: 2\na: 3\n"),
                 "x:3:1: error: the key 'a' is given twice; first at line 1, column 1"));
  CHECK(contains(complaint("o:\n  - {k: 1, k: 2}\n"),
                 "x:2:12: error: the key 'k' is given twice; first at line 2, column 6"));
  CHECK(contains(complaint("a: 1\n'a': 2\n"), "given twice"));
  CHECK(complaint("a: {k: 1}\nb: {k: 1}\n") == "accepted");
}

TEST_CASE("several keys given twice are all told", "[yaml_tree]") {
  const std::string all = complaint("a: 1\na: 2\nb: {c: 1, c: 2}\na: 3\n");
  CHECK(contains(all, "x:2:1: "));
  CHECK(contains(all, "x:3:11: "));
  CHECK(contains(all, "x:4:1: "));
}

TEST_CASE("merge keys and keys that are no text are errors", "[yaml_tree]") {
  CHECK(contains(complaint("a: &x {b: 1}\nc: {<<: *x}\n"), "x:2:5: error: merge keys"));
  CHECK(contains(complaint("? [a]\n: 1\n"), "x:1:3: error: a list or map cannot be a key"));
  CHECK(contains(complaint("[::]: 1\n"), "x:1:1: error: a list or map cannot be a key"));
  CHECK(contains(complaint("a: 1\n: 2\n"), "x:2:1: error: a key is missing"));
  CHECK(contains(complaint("~: 2\n"), "a key is missing, or is null"));
  CHECK(complaint("'<<': 1\n") == "accepted");
}

TEST_CASE("an alias is a copy of what its anchor names", "[yaml_tree]") {
  const Node root = tree("a: &x {k: [1, 2]}\nb: *x\nc: &y text\nd: *y\n");
  CHECK(same(root.find("a")->value, root.find("b")->value));
  CHECK(root.find("b")->value.mark.line == 2);
  CHECK(root.find("b")->value.find("k")->mark.line == 1);
  CHECK(root.find("d")->value.text == "text");
  CHECK(root.find("d")->value.mark.line == 4);
}

TEST_CASE("an alias of nothing, or of what it stands in, is an error", "[yaml_tree]") {
  CHECK(contains(complaint("a: *nope\n"), "x:1:4: error: an alias of an anchor that is not defined"));
  CHECK(contains(complaint("sni: *.example.com\n"), "\"*.example.com\""));
  CHECK(contains(complaint("a: &x [*x]\n"), "x:1:8: error: an alias inside the value that it stands for"));
  CHECK(contains(complaint("a: &x {k: *x}\n"), "x:1:11: error: an alias inside"));
}

TEST_CASE("aliases that expand to millions are refused at once", "[yaml_tree]") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string name = "a" + std::to_string(i);
    const std::string inner = "*a" + std::to_string(i - 1);
    bomb += name + ": &" + name + " [" + inner + repeat(", " + inner, 8) + "]\n";
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string told = complaint(bomb);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  CHECK(contains(told, "error: more than 200000 values by here, aliases expanded"));
  CHECK(told.starts_with("x:6:"));
}

TEST_CASE("aliases of a long text are refused before they fill memory", "[yaml_tree]") {
  const std::string text =
      "a: &a \"" + std::string(500'000, 'x') + "\"\nb: [*a" + repeat(", *a", 1000) + "]\n";
  CHECK(contains(complaint(text), "x:2:"));
  CHECK(contains(complaint(text), "bytes by here, aliases expanded"));
}

TEST_CASE("aliases inside aliases count towards the depth", "[yaml_tree]") {
  std::string text = "a0: &a0 [x]\n";
  for (int i = 1; i <= kDeepest; ++i) {
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  }
  CHECK(contains(complaint(text), "more than 32 lists and maps inside each other"));
}

TEST_CASE("a tab that indents is an error at the tab", "[yaml_tree]") {
  CHECK(complaint("a:\n\tb: 1\n") == "x:2:1: error: a tab in the indentation: indent by spaces\n");
  CHECK(contains(complaint("a:\n  \tb: 1\n"), "x:2:3: error: a tab"));
  CHECK(contains(complaint("a: [1,\n\t2]\n"), "x:2:1: error: a tab"));
  CHECK(joined(parse("a:\n\tb: 1\nc:\n\td: 1\n").lines) ==
        "x:2:1: error: a tab in the indentation: indent by spaces\nx:4:1: error: a tab in the indentation: "
        "indent by spaces\n");
  CHECK(complaint("a: 1\t# comment after a tab\n\t\n\t# comment\nb: 'x\ty'\n") == "accepted");
}

TEST_CASE("bytes that no text file has are errors at their place", "[yaml_tree]") {
  using std::string_view;
  CHECK(complaint(string_view("a: 1\nb: \0\n", 10)) ==
        "x:2:4: error: control byte 0x00 in the text; \"\\x..\" in double quotes writes it\n");
  CHECK(contains(complaint("a: \x1b[0m\n"), "x:1:4: error: control byte 0x1b"));
  CHECK(contains(complaint("a: \x7f\n"), "control byte 0x7f"));
  CHECK(contains(complaint("a: \xff\xfe\n"), "x:1:4: error: byte 0xff is not UTF-8"));
  CHECK(contains(complaint("\xff\xfe"
                           "a"),
                 "x:1:1: error: byte 0xff is not UTF-8"));
  CHECK(contains(complaint("a: \xc0\xaf\n"), "not UTF-8"));          // not the shortest form
  CHECK(contains(complaint("a: \xed\xa0\x80\n"), "not UTF-8"));      // a surrogate
  CHECK(contains(complaint("a: \xf4\x90\x80\x80\n"), "not UTF-8"));  // beyond U+10FFFF
  CHECK(contains(complaint("a: \xe2\x82"), "not UTF-8"));            // cut short
  CHECK(contains(complaint("a: 1\rb: 2\n"), "x:1:5: error: a carriage return"));
  CHECK(tree("a: \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n").find("a")->value.text ==
        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST_CASE("tags other than the core ones are errors", "[yaml_tree]") {
  CHECK(contains(complaint("a: !secret b\n"), "x:1:4: error: the tag '!secret'"));
  CHECK(contains(complaint("a: !!binary aGk=\n"), "x:1:4: error: the tag"));
  CHECK(contains(complaint("a: !!set {b}\n"), "x:1:4: error: the tag"));
  CHECK(contains(complaint("a: !x [b]\n"), "x:1:4: error: the tag"));
  CHECK(complaint("a: !!map {b: !!seq [!!str c, !!int 5, !!bool true]}\n") == "accepted");
}

TEST_CASE("a quote that is never closed is an error where it begins", "[yaml_tree]") {
  CHECK(complaint("a: 'x\nb: 1\n") == "x:1:4: error: a quoted text is not closed\n");
  CHECK(complaint("a: 1\nb: \"x\n") == "x:2:4: error: a quoted text is not closed\n");
  CHECK(complaint("a: 1\nb: \"x\\\"") == "x:2:4: error: a quoted text is not closed\n");
  CHECK(complaint("a: \"b\" # don't\nc: [\"d\", 'e]\n") == "x:2:10: error: a quoted text is not closed\n");
}

TEST_CASE("what YAML cannot read is told with its place and what to do", "[yaml_tree]") {
  const auto [text, told] = GENERATE(table<std::string, std::string>({
      {"bind: ::\n", "x:1:8: error: a ':' is out of place"},
      {"a: b: c\n", "x:1:5: error: a ':' is out of place"},
      {"a: 1\n  b: 2\n", "x:2:4: error: a ':' is out of place"},
      {"bind: [::]:443\n", "x:1:11: error: text after a value that is complete"},
      {"a: \"b\" c\n", "x:1:8: error: text after a value"},
      {"a: @x\n", "x:1:4: error: text that begins with '@' must be quoted"},
      {"a: %x\n", "x:1:4: error: text that begins with '%' must be quoted"},
      {"a: - b\n", "x:1:4: error: a '-' is out of place"},
      {"a: [1, 2\nb: 3\n", "x:2:2: error: a '[' is not closed"},
      {"a: {b: 1\n", "error: a '{' is not closed"},
      {"}\n", "x:1:1: error: YAML: "},
      {"a: \"\\q\"\n", "x:1:7: error: YAML: "},
      {"%YAML 2.0\n---\na: 1\n", "x:1:1: error: YAML: "},
  }));
  INFO(text);
  INFO(complaint(text));
  CHECK(contains(complaint(text), told));
}

TEST_CASE("depth is limited, and no depth takes long", "[yaml_tree]") {
  CHECK(complaint(repeat("[", 31) + repeat("]", 31)) == "accepted");
  CHECK(complaint(repeat("[", 32) + repeat("]", 32)) == "accepted");
  CHECK(complaint(repeat("[", 33) + repeat("]", 33)) ==
        "x:1:33: error: more than 32 lists and maps inside each other\n");
  const std::size_t most = kLargestYaml;
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& text : {repeat("[", most), repeat("{", most), repeat("[{", most / 2),
                                  repeat("- ", most / 2), repeat("? ", most / 2), repeat("{a: ", most / 4),
                                  repeat("[a, ", most / 4), repeat("[\n", most / 2)}) {
    CHECK(contains(complaint(text), "error: "));
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE("a file may not have too many values or bytes", "[yaml_tree]") {
  CHECK(contains(complaint("a:\n" + repeat("- x\n", kMostValues)), "more than 200000 values"));
  CHECK(complaint(std::string(kLargestYaml + 1, ' ')) == "x:1:1: error: larger than 1048576 bytes\n");
  CHECK(contains(complaint(std::string(kLargestYaml, ' ')), "no configuration"));
}

TEST_CASE("a tree is read back from its own text", "[yaml_tree]") {
  Node root = Node::map();
  Node list = Node::sequence();
  for (const char* text : {"plain",
                           "null",
                           "Null",
                           "~",
                           "",
                           "true",
                           "off",
                           "1e3",
                           "0443",
                           " lead",
                           "trail ",
                           "a: b",
                           "a:",
                           "# no comment",
                           "- x",
                           "*.example.com",
                           "[::1]:80",
                           "multi\nline\n",
                           "tab\t",
                           "\x01\x7f",
                           "quote\" and \\",
                           "'",
                           "\xc3\xa4\xe2\x82\xac",
                           "<<",
                           "---",
                           "...",
                           "&a",
                           "!t",
                           "http/1.1"}) {
    list.items.push_back(Node::string(text));
  }
  root.entries.push_back({"list", {}, list});
  root.entries.push_back({"no", {}, Node::sequence()});
  root.entries.push_back({"an odd: key", {}, Node::map()});
  Node inner = Node::map();
  inner.entries.push_back({"deep", {}, list});
  inner.entries.push_back({"nothing", {}, Node()});
  Node maps = Node::sequence();
  maps.items = {inner, list, Node::plain("5"), inner, Node::map()};
  root.entries.push_back({"maps", {}, maps});
  const std::string text = write_yaml(root);
  INFO(text);
  CHECK(same(tree(text), root));
}

TEST_CASE("a text that other YAML readers take for a value is written in quotes", "[yaml_tree]") {
  for (const char* text :
       {"null", "true", "False", "yes", "NO", "on", "off", "y", "1e3", "0443", "22:22", "~", ".5"}) {
    CHECK(write_yaml(Node::string(text)) == "\"" + std::string(text) + "\"\n");
  }
  CHECK(write_yaml(Node::string("www.example.com")) == "www.example.com\n");
  CHECK(write_yaml(Node::plain("true")) == "true\n");
}
