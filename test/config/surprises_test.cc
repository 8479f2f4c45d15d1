// YAML that means something other than it looks: each means what the manual says, or is an error with
// its place.
#include <string>

#include "config/loading.h"
#include "support/catch.h"

using namespace tlsproxy::config;

namespace {

// A configuration that is sound but for what a test puts into it.
std::string with(std::string_view top, std::string_view bind = "127.0.0.1:1",
                 std::string_view server = "a:1") {
  return std::string(top) + "\nlisteners:\n  - name: l\n    bind: " + std::string(bind) +
         "\n    to: b\nbackends:\n  b: {servers: [" + std::string(server) + "]}\n";
}

std::string errors(std::string_view text) {
  return joined(load(text).lines);
}

}  // namespace

TEST_CASE("the frame of these tests is sound", "[surprises]") {
  CHECK(errors(with("")).empty());
}

TEST_CASE("a key given twice is an error at each level", "[surprises]") {
  CHECK(contains(errors(with("workers: 1\nworkers: 2")),
                 "x:2:1: error: the key 'workers' is given twice; first at line 1"));
  CHECK(contains(errors(with("log: {level: info, level: warn}")),
                 "x:1:20: error: the key 'level' is given twice"));
  CHECK(contains(errors("listeners:\n  - name: a\n    name: b\n"),
                 "x:3:5: error: the key 'name' is given twice"));
  CHECK(contains(errors(with("", "{address: \":1\", address: \":2\"}")), "x:4:27: error: the key 'address'"));
  CHECK(contains(errors("backends:\n  a: [\"h:1\"]\n  a: [\"h:2\"]\n"),
                 "x:3:3: error: the key 'a' is given twice"));
}

TEST_CASE("an octal-looking number is an error wherever a number is wanted", "[surprises]") {
  CHECK(contains(errors(with("", "0443")), "x:4:11: error: bind: '0443': port '0443' has a leading zero"));
  CHECK(contains(errors(with("", "127.0.0.1:08")), "x:4:11: error: bind: "));
  CHECK(contains(errors(with("", ":1", "\"a:080\"")), "has a leading zero"));
  CHECK(contains(errors(with("workers: 0443")), "x:1:10: error: workers: '0443' has a leading zero"));
  CHECK(contains(errors(with("workers: 08")), "x:1:10: error: workers: '08' has a leading zero"));
  CHECK(contains(errors(with("drain: 08s")), "x:1:8: error: drain: '08s' has a leading zero"));
}

TEST_CASE("'::' is an error that tells the form in brackets", "[surprises]") {
  CHECK(contains(errors(with("", "'::'")),
                 "x:4:11: error: bind: '::' is ambiguous: every IPv6 address is \"[::]:PORT\""));
  CHECK(contains(errors(with("", "::")), "x:4:12: error: a ':' is out of place"));
  CHECK(contains(errors(with("", "::1")), "x:4:11: error: bind: '::1' is ambiguous"));
  CHECK(contains(errors(with("", "[::]:443")), "x:4:15: error: "));
  CHECK(contains(errors(with("", "*:443")), "x:4:11: error: an alias"));
  CHECK(errors(with("", "'[::]:443'")).empty());
  CHECK(errors(with("", "'*:443'")).empty());
}

TEST_CASE("base 60 does not exist: 22:22 is a text, and no address", "[surprises]") {
  CHECK(contains(errors(with("", "22:22")), "x:4:11: error: bind: '22:22' is not a numeric address"));
  CHECK(contains(errors(with("", "1:30")), "x:4:11: error: bind: '1:30' is not a numeric address"));
  CHECK(contains(errors(with("", ":1", "22:22")), "'22' is neither a host name nor an IPv4 address"));
  CHECK(contains(errors(with("drain: 1:30")), "x:1:8: error: drain: '1:30' has the unknown unit"));
  CHECK(contains(errors(with("workers: 1:30")), "x:1:10: error: workers: '1:30' is not a whole number"));
}

TEST_CASE("words that YAML may take for values are names where a name is wanted", "[surprises]") {
  const auto loaded = load(
      "user: on\ngroup: no\npid_file: 1e3\nlisteners:\n"
      "  - {name: on, bind: \":1\", to: no}\n  - {name: 1e3, bind: \":2\", to: yes}\n"
      "  - {name: \"null\", bind: \":3\", to: \"null\"}\n"
      "backends:\n  no: \"a:1\"\n  yes: \"a:1\"\n  \"null\": \"a:1\"\n");
  INFO(joined(loaded.lines));
  REQUIRE(loaded.lines.empty());
  CHECK(loaded.config.user.value == "on");
  CHECK(loaded.config.group.value == "no");
  CHECK(loaded.config.pid_file.value == "1e3");
  CHECK(loaded.config.listeners[0].name == "on");
  CHECK(loaded.config.listeners[1].name == "1e3");
  CHECK(loaded.config.listeners[2].name == "null");
  CHECK(loaded.config.backends[0].name == "no");
  CHECK(loaded.config.listeners[0].routes[0].to.value == "no");
}

TEST_CASE("null is no text", "[surprises]") {
  CHECK(contains(errors(with("user: null")), "x:1:7: error: user: a text is expected, not nothing"));
  CHECK(contains(errors(with("user: ~")), "x:1:7: error: user: "));
  CHECK(contains(errors(with("user:")), "x:1:1: error: user: "));
  CHECK(contains(errors(with("user: ''")), "x:1:7: error: user: a text is expected, not an empty text"));
  CHECK(contains(errors("listeners:\n  - {name: null, bind: \":1\", to: b}\nbackends: {b: \"a:1\"}\n"),
                 "x:2:12: error: name: "));
  CHECK(contains(errors("listeners:\n  - {name: l, bind: \":1\", to: \"null\"}\nbackends: {null: \"a:1\"}\n"),
                 "x:3:12: error: a key is missing, or is null"));
  CHECK(contains(errors(with("log:")), "x:1:1: error: log: a map of keys is expected, not nothing"));
  CHECK(contains(errors(with("workers:")), "x:1:1: error: workers: a whole number is expected, not nothing"));
}

TEST_CASE("tabs that indent are errors with their place", "[surprises]") {
  CHECK(contains(errors("log:\n\tlevel: info\n"), "x:2:1: error: a tab in the indentation"));
}

TEST_CASE("anchors and aliases work, merge keys are refused, bombs are bounded", "[surprises]") {
  const auto loaded = load(
      "listeners:\n  - {name: a, bind: \":1\", to: b, timeouts: &t {idle: 7s}}\n"
      "  - {name: c, bind: \":2\", to: b, timeouts: *t}\nbackends: {b: \"a:1\"}\n");
  INFO(joined(loaded.lines));
  REQUIRE(loaded.lines.empty());
  CHECK(loaded.config.listeners[1].timeouts.idle == 7s);
  CHECK(contains(errors(with("x: &x {level: info}\nlog: {<<: *x}")), "x:2:7: error: merge keys"));
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const std::string inner = std::string("*") + static_cast<char>(c - 1);
    bomb += std::string(1, c) + ": &" + c + " [" + inner;
    for (int i = 0; i < 9; ++i) bomb += ", " + inner;
    bomb += "]\n";
  }
  CHECK(contains(errors(bomb), "more than 200000 values by here, aliases expanded"));
}

TEST_CASE("what an alias repeats is wrong once", "[surprises]") {
  const auto loaded = load(
      "listeners:\n  - {name: a, bind: \":1\", to: b, timeouts: &t {idel: 7s}}\n"
      "  - {name: c, bind: \":2\", to: b, timeouts: *t}\nbackends: {b: \"a:1\"}\n");
  CHECK(joined(loaded.lines) == "x:2:48: error: unknown key 'idel' in timeouts; did you mean 'idle'?\n");
}

TEST_CASE("a misspelt key is told with the nearest one", "[surprises]") {
  CHECK(contains(errors(with("wokers: 1")),
                 "x:1:1: error: unknown key 'wokers' in the configuration; did you mean 'workers'?"));
  CHECK(contains(errors("bakcends: {}\nlisteners: []\n"),
                 "x:1:1: error: unknown key 'bakcends' in the configuration; did you mean 'backends'?"));
  CHECK(contains(errors(with("log: {levle: info}")),
                 "x:1:7: error: unknown key 'levle' in log; did you mean 'level'?"));
  CHECK(contains(errors(with("log: {colour: red}")),
                 "x:1:7: error: unknown key 'colour' in log; its keys are level, path, access"));
  CHECK(contains(errors(with("log: {level:info}")),
                 "x:1:7: error: unknown key 'level:info' in log; a space must follow the colon"));
}

TEST_CASE("byte order mark and CRLF are accepted", "[surprises]") {
  std::string text = "\xef\xbb\xbf" + with("drain: 5s");
  for (std::size_t i = 0; (i = text.find('\n', i)) != std::string::npos; i += 2) text.replace(i, 1, "\r\n");
  const auto loaded = load(text);
  INFO(joined(loaded.lines));
  CHECK(loaded.lines.empty());
  CHECK(loaded.config.drain == 5s);
}

TEST_CASE("a duration needs its unit, a size too", "[surprises]") {
  CHECK(contains(errors(with("drain: 5")), "x:1:8: error: drain: '5' has no unit"));
  CHECK(contains(errors(with("drain: 0")), "x:1:8: error: drain: '0' has no unit"));
  CHECK(load(with("drain: 5s")).config.drain == 5s);
  CHECK(contains(errors(with("buffer_memory: 512")), "x:1:16: error: buffer_memory: '512' has no unit"));
}

TEST_CASE("numbers out of every range are errors", "[surprises]") {
  CHECK(contains(errors(with("workers: -1")), "x:1:10: error: workers: '-1' is negative"));
  CHECK(contains(errors(with("workers: 99999999999999999999")),
                 "x:1:10: error: workers: '99999999999999999999' is not between"));
  CHECK(contains(errors(with("workers: 0")), "is not between 1 and 1024"));
  CHECK(contains(errors(with("workers: 0x10")), "hexadecimal"));
  CHECK(contains(errors(with("workers: 1.0")), "fraction"));
  CHECK(contains(errors(with("workers: 1e3")), "exponent"));
  CHECK(contains(errors(with("workers: \"4\"")), "write 4 without quotes"));
  CHECK(contains(errors(with("drain: -1s")), "x:1:8: error: drain: '-1s' is negative"));
  CHECK(contains(errors(with("drain: 99999999999999999999s")), "more than 365d"));
}

TEST_CASE("an empty file and two documents are errors with their places", "[surprises]") {
  CHECK(errors("") == "x:1:1: error: there is no configuration in this file\n");
  CHECK(errors("# nothing\n") == "x:1:1: error: there is no configuration in this file\n");
  CHECK(contains(errors("workers: 1\n---\nworkers: 2\n"), "x:2:1: error: a second document"));
  CHECK(contains(errors("- a\n"), "x:1:1: error: a configuration is a map of keys"));
  CHECK(contains(errors("workers:1\nuser:x\n"), "x:1:1: error: a configuration is a map of keys"));
}
