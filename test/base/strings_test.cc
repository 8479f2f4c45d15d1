#include "base/strings.h"

#include <string>
#include <vector>

#include "support/catch.h"

using namespace tlsproxy;

TEST_CASE("lower case changes ASCII letters and nothing else", "[strings]") {
  CHECK(base::to_lower("WWW.Example.COM") == "www.example.com");
  CHECK(base::to_lower("@[`{\xc3\x84") == "@[`{\xc3\x84");
  CHECK(base::to_lower("") == "");
}

TEST_CASE("the nearest word is found after one slip of the keyboard", "[strings]") {
  const std::vector<std::string_view> keys{"name", "bind", "backends", "listeners", "tls", "to", "timeouts"};
  CHECK(base::nearest("bakcends", keys) == "backends");
  CHECK(base::nearest("nmae", keys) == "name");
  CHECK(base::nearest("nam", keys) == "name");
  CHECK(base::nearest("names", keys) == "name");
  CHECK(base::nearest("bond", keys) == "bind");
  CHECK(base::nearest("tsl", keys) == "tls");
  CHECK(base::nearest("timeout", keys) == "timeouts");
  CHECK(base::nearest("ot", keys) == "to");
}

TEST_CASE("a word with more than a third of its letters wrong has no nearest one", "[strings]") {
  const std::vector<std::string_view> keys{"name", "bind", "a"};
  CHECK(base::nearest("mane", {"none"}).empty());
  CHECK(base::nearest("certificate", keys).empty());
  CHECK(base::nearest("b", keys).empty());
  CHECK(base::nearest("", keys).empty());
  CHECK(base::nearest("name", {}).empty());
}

TEST_CASE("of equally near words the first is taken, and a nearer one before any", "[strings]") {
  CHECK(base::nearest("web3", {"web1", "web2"}) == "web1");
  CHECK(base::nearest("server-a", {"server", "server-b"}) == "server-b");
}

TEST_CASE("a very long word is compared in no time", "[strings]") {
  const std::string giant(4 * 1024 * 1024, 'x');
  CHECK(base::nearest(giant, {"name", "bind"}).empty());
}

TEST_CASE("escaped bytes are printable ASCII on one line", "[strings]") {
  CHECK(base::escape("plain text") == "plain text");
  CHECK(base::escape("a\"b\\c") == "a\\\"b\\\\c");
  CHECK(base::escape(std::string_view("\0\n\x7f\xff", 4)) == "\\x00\\x0a\\x7f\\xff");
}

TEST_CASE("an escaped text shows that it was cut", "[strings]") {
  CHECK(base::escape("abcdef", 3) == "abc...");
  CHECK(base::escape("abc", 3) == "abc");
}

TEST_CASE("hexadecimal has two lower-case digits for each byte", "[strings]") {
  CHECK(base::to_hex(std::string_view("\x00\x0f\xf0\xff", 4)) == "000ff0ff");
  CHECK(base::to_hex("") == "");
}
