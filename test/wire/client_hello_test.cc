#include "wire/client_hello.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "support/catch.h"

using namespace tlsproxy;
using wire::ClientHello;
using wire::HelloVerdict;
using wire::parse_client_hello;

namespace {

constexpr std::size_t kLimit = 16 * 1024;

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

// SNI example.com, TLS 1.3 and 1.2, x25519; 209 bytes.
const std::string& base_hello() {
  static const std::string hello = from_hex(
      "16030100cc010000c803035a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a20a5a5a5a5a5a5a5"
      "a5"
      "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a50010130113021303c02bc02fc02cc030009c0100006f0000001000"
      "0e00"
      "000b6578616d706c652e636f6d000a00060004001d0017000b00020100000d000e000c040308040401050308050501002b0005"
      "04"
      "03040303003300260024001d00200900000000000000000000000000000000000000000000000000000000000000002d000201"
      "01");
  return hello;
}

std::string base_message() {
  return base_hello().substr(5);
}

std::string number(std::size_t value, int width) {
  std::string bytes;
  for (int i = width - 1; i >= 0; --i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

std::string sized(int width, const std::string& content) {
  return number(content.size(), width) + content;
}

// `message` as TLS records, cut at `cuts`.
std::string records(const std::string& message, std::vector<std::size_t> cuts = {}) {
  cuts.push_back(message.size());
  std::string bytes;
  std::size_t from = 0;
  for (const std::size_t to : cuts) {
    bytes += "\x16\x03\x01" + sized(2, message.substr(from, to - from));
    from = to;
  }
  return bytes;
}

std::string handshake(const std::string& body) {
  return '\x01' + sized(3, body);
}

std::string extension(std::size_t type, const std::string& content) {
  return number(type, 2) + sized(2, content);
}

std::string server_name(const std::string& name) {
  return extension(0, sized(2, '\0' + sized(2, name)));
}

// Up to and without the extensions.
std::string fixed_part() {
  return base_message().substr(4, 87);
}

std::string with_extensions(const std::string& extensions) {
  return records(handshake(fixed_part() + sized(2, extensions)));
}

// The base message grown to `total` bytes by the padding extension (RFC 7685).
std::string padded(std::size_t total) {
  const std::string message = base_message();
  const std::string extensions =
      message.substr(93) + extension(21, std::string(total - message.size() - 4, '\0'));
  return handshake(message.substr(4, 87) + sized(2, extensions));
}

ClientHello parse(std::string_view bytes, std::size_t limit = kLimit) {
  return parse_client_hello(std::as_bytes(std::span(bytes)), limit);
}

HelloVerdict verdict(std::string_view bytes, std::size_t limit = kLimit) {
  return parse(bytes, limit).verdict;
}

// How many bytes it takes to decide; checks that each shorter window needs more, and each longer one gets
// the same verdict and the same fields.
std::size_t decided_at(const std::string& bytes, std::size_t limit = kLimit) {
  std::size_t decided = 0;
  ClientHello first;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const ClientHello now = parse(std::string_view(bytes).substr(0, size), limit);
    if (first.verdict == HelloVerdict::need_more) {
      if (now.verdict == HelloVerdict::need_more) continue;
      decided = size;
      first = now;
    } else if (now.verdict != first.verdict || now.sni != first.sni || now.alpn != first.alpn ||
               now.tls1_3 != first.tls1_3) {
      FAIL("decided " << wire::to_string(first.verdict) << " at " << decided << ", but "
                      << wire::to_string(now.verdict) << " at " << size << ": "
                      << base::escape(bytes, bytes.size()));
    }
  }
  return decided;
}

// Catch's macros convert their operands to strings; a word is more telling than a number.
std::string word(HelloVerdict verdict) {
  return std::string(wire::to_string(verdict));
}

}  // namespace

TEST_CASE("a hello gives its name, and tells that it offers TLS 1.3", "[client_hello]") {
  const ClientHello hello = parse(base_hello());
  CHECK(word(hello.verdict) == "hello");
  CHECK(hello.sni == "example.com");
  CHECK(hello.alpn.empty());
  CHECK(hello.tls1_3);
}

TEST_CASE("every prefix of a hello needs more, and its last byte decides", "[client_hello]") {
  CHECK(decided_at(base_hello()) == base_hello().size());
}

TEST_CASE("what follows a hello does not change its verdict", "[client_hello]") {
  CHECK(decided_at(base_hello() + "\x17\x03\x03" + sized(2, "early data")) == base_hello().size());
  CHECK(decided_at(base_hello() + std::string(kLimit, '\xff')) == base_hello().size());
  // More handshake bytes in the same record: the server behind judges those.
  CHECK(decided_at(records(base_message() + base_message())) == base_hello().size());
}

TEST_CASE("a hello may be spread over records, cut anywhere", "[client_hello]") {
  const std::string message = base_message();
  for (std::size_t cut = 1; cut < message.size(); ++cut) {
    const std::string bytes = records(message, {cut});
    const ClientHello hello = parse(bytes);
    REQUIRE(word(hello.verdict) == "hello");
    REQUIRE(hello.sni == "example.com");
    REQUIRE(decided_at(bytes) == bytes.size());
  }
}

TEST_CASE("a hello in records of one byte is a hello", "[client_hello]") {
  std::vector<std::size_t> cuts(base_message().size() - 1);
  for (std::size_t i = 0; i < cuts.size(); ++i) cuts[i] = i + 1;
  const std::string bytes = records(base_message(), cuts);
  CHECK(bytes.size() == 6 * base_message().size());
  CHECK(parse(bytes).sni == "example.com");
  CHECK(decided_at(bytes) == bytes.size());
}

TEST_CASE("the name is lower case and has no trailing dot", "[client_hello]") {
  std::string shouted = base_hello();
  shouted.replace(shouted.find("example.com"), 11, "EXAMPLE.Com");
  CHECK(parse(shouted).sni == "example.com");
  CHECK(parse(with_extensions(server_name("Example.COM."))).sni == "example.com");
  CHECK(parse(with_extensions(server_name("example.com.."))).sni == "example.com.");
}

TEST_CASE("first bytes that are not TLS are told apart by the first byte that shows it", "[client_hello]") {
  struct Case {
    std::string bytes;
    std::size_t at;
  };
  const std::vector<Case> cases{
      {"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", 1},
      {"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 1},
      {"SSH-2.0-OpenSSH_9.6\r\n", 1},
      {from_hex("802e01030300150000001000002f00003500c02b00c02f00c03000009c0000ff") + std::string(16, '~'),
       1},
      {from_hex("15030100020100"), 1},                     // an alert
      {from_hex("1403010001") + '\x01', 1},                // change_cipher_spec
      {from_hex("0d0a0d0a000d0a515549540a2111000c"), 1},   // PROXY protocol v2
      {from_hex("160201") + base_hello().substr(3), 2},    // a record of version 2.x
      {std::string("\x16\xfe\xfd", 3) + base_hello(), 2},  // DTLS
  };
  for (const Case& given : cases) {
    INFO(base::escape(given.bytes));
    CHECK(word(verdict(given.bytes)) == "not_tls");
    CHECK(decided_at(given.bytes) == given.at);
  }
}

TEST_CASE("the minor version of a record does not matter", "[client_hello]") {
  for (const char minor : {'\x00', '\x03', '\x04', '\x7f'}) {
    std::string bytes = base_hello();
    bytes[2] = minor;
    CHECK(word(verdict(bytes)) == "hello");
  }
}

TEST_CASE("one byte of a hello, then silence, needs more", "[client_hello]") {
  CHECK(word(verdict("")) == "need_more");
  CHECK(word(verdict("\x16")) == "need_more");
}

TEST_CASE("a hello without extensions, or with an empty list of them, has no name", "[client_hello]") {
  for (const std::string& bytes : {records(handshake(fixed_part())), with_extensions("")}) {
    const ClientHello hello = parse(bytes);
    CHECK(word(hello.verdict) == "hello");
    CHECK_FALSE(hello.sni.has_value());
    CHECK(hello.alpn.empty());
    CHECK_FALSE(hello.tls1_3);
  }
  CHECK(records(handshake(fixed_part())).size() == 96);
}

TEST_CASE("the protocols are given in the client's order, as offered", "[client_hello]") {
  const std::string offer = sized(1, "h2") + sized(1, "http/1.1") + sized(1, std::string("\x0a\x0a"));
  const ClientHello hello = parse(with_extensions(extension(16, sized(2, offer))));
  CHECK(word(hello.verdict) == "hello");
  CHECK(hello.alpn == std::vector<std::string>{"h2", "http/1.1", "\x0a\x0a"});
}

TEST_CASE("TLS 1.3 is offered by supported_versions only", "[client_hello]") {
  CHECK(parse(with_extensions(extension(43, sized(1, from_hex("0a0a03030304"))))).tls1_3);
  CHECK_FALSE(parse(with_extensions(extension(43, sized(1, from_hex("03030302"))))).tls1_3);
  CHECK_FALSE(parse(with_extensions(server_name("example.com"))).tls1_3);
}

TEST_CASE("a name that is no host name makes the hello malformed", "[client_hello]") {
  const std::vector<std::string> names{
      "",
      ".",
      std::string("example.com\0.evil.test", 22),
      std::string("\0", 1),
      "exam ple.com",
      "example.com\n",
      "\x1b[2Jexample.com",
      "example.com\x7f",
      std::string(256, 'a'),
  };
  for (const std::string& name : names) {
    INFO(base::escape(name));
    CHECK(word(verdict(with_extensions(server_name(name)))) == "malformed");
  }
  CHECK(parse(with_extensions(server_name(std::string(255, 'a')))).sni == std::string(255, 'a'));
  CHECK(parse(with_extensions(server_name("b\xc3\xbc\x63her.example"))).sni == "b\xc3\xbc\x63her.example");
}

TEST_CASE("lengths that contradict each other make the hello malformed", "[client_hello]") {
  const std::string host = '\0' + sized(2, "a.test");
  const std::string protocol = sized(1, "h2");
  const std::vector<std::pair<const char*, std::string>> extensions{
      {"server_name empty", extension(0, "")},
      {"server_name of one byte", extension(0, std::string(1, '\0'))},
      {"server_name list empty", extension(0, sized(2, ""))},
      {"server_name list longer than the extension", extension(0, number(host.size() + 1, 2) + host)},
      {"server_name list shorter than the extension", extension(0, number(host.size() - 1, 2) + host)},
      {"host name longer than its list", extension(0, sized(2, '\0' + number(7, 2) + "a.test"))},
      {"host name shorter than its list", extension(0, sized(2, '\0' + number(5, 2) + "a.test"))},
      {"two host names", extension(0, sized(2, host + host))},
      {"a name of another type", extension(0, sized(2, '\1' + sized(2, "a.test")))},
      {"alpn empty", extension(16, "")},
      {"alpn list empty", extension(16, sized(2, ""))},
      {"alpn list longer than the extension", extension(16, number(protocol.size() + 1, 2) + protocol)},
      {"alpn list shorter than the extension", extension(16, number(protocol.size() - 1, 2) + protocol)},
      {"alpn protocol without letters", extension(16, sized(2, protocol + sized(1, "")))},
      {"alpn protocol longer than its list", extension(16, sized(2, "\x03h2"))},
      {"supported_versions empty", extension(43, "")},
      {"supported_versions list empty", extension(43, sized(1, ""))},
      {"supported_versions of odd length", extension(43, sized(1, from_hex("030403")))},
      {"supported_versions longer than the extension", extension(43, from_hex("040304"))},
      {"supported_versions shorter than the extension", extension(43, from_hex("0203040303"))},
      {"an extension longer than the list", number(65281, 2) + number(1, 2)},
      {"half an extension type", "\xff"},
      {"half an extension length", std::string("\xff\x01\x00", 3)},
  };
  for (const auto& [what, bytes] : extensions) {
    INFO(what);
    CHECK(word(verdict(with_extensions(bytes))) == "malformed");
    CHECK(decided_at(with_extensions(bytes)) == with_extensions(bytes).size());
  }

  const std::string start = std::string(34, '\x03');  // version and random
  const std::string ciphers = sized(2, "\x13\x01");
  const std::string null_compression = sized(1, std::string(1, '\0'));
  const std::vector<std::pair<const char*, std::string>> bodies{
      {"nothing", ""},
      {"random cut", std::string(33, '\x03')},
      {"no session id", start},
      {"session id of 33 bytes", start + sized(1, std::string(33, 's')) + ciphers + null_compression},
      {"session id cut", start + '\x20' + "short"},
      {"no cipher suites", start + sized(1, "")},
      {"cipher suites empty", start + sized(1, "") + sized(2, "") + null_compression},
      {"cipher suites odd", start + sized(1, "") + sized(2, "\x13\x01\x13") + null_compression},
      {"cipher suites cut", start + sized(1, "") + number(4, 2) + "\x13\x01"},
      {"no compression methods", start + sized(1, "") + ciphers},
      {"compression methods empty", start + sized(1, "") + ciphers + sized(1, "")},
      {"half a length of extensions", start + sized(1, "") + ciphers + null_compression + '\0'},
      {"extensions cut", start + sized(1, "") + ciphers + null_compression + number(4, 2) + "abc"},
      {"bytes after the extensions", fixed_part() + sized(2, "") + '\0'},
  };
  for (const auto& [what, body] : bodies) {
    INFO(what);
    CHECK(word(verdict(records(handshake(body)))) == "malformed");
  }
  CHECK(word(verdict(records(handshake(start + sized(1, "") + ciphers + null_compression)))) == "hello");
}

TEST_CASE("an extension given twice makes the hello malformed", "[client_hello]") {
  CHECK(word(verdict(with_extensions(server_name("a.test") + server_name("b.test")))) == "malformed");
  CHECK(word(verdict(with_extensions(extension(65281, "x") + extension(65280, "x")))) == "hello");
  CHECK(word(verdict(with_extensions(extension(65281, "x") + extension(65281, "x")))) == "malformed");
}

TEST_CASE("a malformed hello shows no field of it", "[client_hello]") {
  const std::string alpn = extension(16, sized(2, sized(1, "h2")));
  const ClientHello hello = parse(with_extensions(server_name("a.test") + alpn + alpn));
  CHECK(word(hello.verdict) == "malformed");
  CHECK_FALSE(hello.sni.has_value());
  CHECK(hello.alpn.empty());
}

TEST_CASE("a handshake record that cannot begin a hello is malformed at the byte that shows it",
          "[client_hello]") {
  struct Case {
    const char* what;
    std::string bytes;
    std::size_t at;
  };
  const std::string first = records(base_message().substr(0, 100));  // 105 bytes
  const std::vector<Case> cases{
      {"a record without content", from_hex("1603010000") + base_hello(), 5},
      {"a record larger than 2^14", from_hex("1603014001") + std::string(100, '\1'), 5},
      {"a ServerHello", from_hex("16030100040200"), 6},
      {"an empty record between two fragments", first + from_hex("1603010000"), 110},
      {"an alert between two fragments", first + from_hex("15030100020100"), 106},
      {"another version between two fragments", first + from_hex("16020100ff"), 107},
  };
  for (const Case& given : cases) {
    INFO(given.what);
    CHECK(word(verdict(given.bytes)) == "malformed");
    CHECK(decided_at(given.bytes) == given.at);
  }
  // As large as a record may be.
  CHECK(word(verdict(records(padded(16384)), 16389)) == "hello");
}

TEST_CASE("a hello as large as the limit is one, and a larger one is too large as soon as it says so",
          "[client_hello]") {
  const std::string fits = records(padded(1000));  // 1005 bytes
  CHECK(parse(fits, 1005).sni == "example.com");
  CHECK(decided_at(fits, 1005) == 1005);
  CHECK(word(verdict(fits, 1004)) == "too_large");
  CHECK(decided_at(fits, 1004) == 9);  // the message's length is in

  // 16 KiB is the default limit and a hello of that size needs two records; the headers count.
  const std::string two = records(padded(16374), {8000});
  CHECK(two.size() == kLimit);
  CHECK(word(verdict(two)) == "hello");
  CHECK(word(verdict(records(padded(16375), {8000}))) == "too_large");

  CHECK(word(verdict(from_hex("1603014000") + from_hex("01ffffff"))) == "too_large");
}

TEST_CASE("a limit's worth of bytes is always enough for a verdict", "[client_hello]") {
  std::vector<std::size_t> cuts(base_message().size() - 1);
  for (std::size_t i = 0; i < cuts.size(); ++i) cuts[i] = i + 1;
  const std::string slow = records(base_message(), cuts);  // headers use the limit up
  for (std::size_t limit = 0; limit < slow.size(); limit += 13) {
    REQUIRE(word(verdict(slow, limit)) == "too_large");
    REQUIRE(decided_at(slow.substr(0, limit + 6), limit) <= limit);
  }
  CHECK(word(verdict(slow, slow.size())) == "hello");
}

TEST_CASE("no mutation of a hello makes its verdict change with more bytes", "[client_hello]") {
  const std::uint32_t seed = 20261130;
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
  };
  const std::vector<std::string> seeds{
      base_hello(),
      records(base_message(), {1, 3, 50, 120}),
      with_extensions(server_name("a.test") + extension(16, sized(2, sized(1, "h2") + sized(1, "ftp"))) +
                      extension(43, sized(1, from_hex("03040303")))),
  };
  std::array<std::size_t, 5> verdicts{};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = seeds[below(seeds.size())];
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t at = below(bytes.size());
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 2:
          bytes.erase(at, 1 + below(4));
          break;
        case 3:
          bytes.insert(at, bytes, below(bytes.size()), 1 + below(20));
          break;
        default:
          bytes.resize(std::max<std::size_t>(at, 16));
          break;
      }
    }
    const std::size_t limit = below(2) == 0 ? kLimit : 150 + below(100);
    INFO("seed " << seed << " round " << round << " limit " << limit);
    const auto final = verdict(bytes, limit);
    if (final != HelloVerdict::need_more) REQUIRE(decided_at(bytes, limit) <= limit);
    ++verdicts[static_cast<std::size_t>(final)];
  }
  // The mutations reach every verdict, or this test shows less than it says.
  for (const std::size_t count : verdicts) CHECK(count > 0);
}
