#include "tls/record_layer.h"

#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.h"
#include "support/sockets.h"

using namespace tlsproxy;
using namespace tlsproxy::tls;
using Kind = RecordLayer::Step::Kind;

namespace {

using Octets = std::vector<std::byte>;

Octets from_hex(std::string_view text) {
  Octets bytes;
  std::string digits;
  for (const char c : text) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() < 2) continue;
    bytes.push_back(static_cast<std::byte>(std::stoi(digits, nullptr, 16)));
    digits.clear();
  }
  return bytes;
}

// RFC 8448, 3: the traffic of a simple handshake with TLS_AES_128_GCM_SHA256.
const Octets kClientSecret = from_hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
const Octets kServerSecret = from_hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
const Octets kClientRecord = from_hex(
    "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa 66 bc ab 3f 2b 98"
    "19 a8 a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 97 70 14 bd 1e 3d ea e6 3a ee bb 21"
    "69 49 15 e4");

const Suite& aes128() {
  return *find_suite(0x1301);
}

// The far end: seals whatever a test wants said, right or wrong, and opens what the layer writes.
struct Far {
  RecordLayer layer;
  TrafficKey sealing;
  TrafficKey opening;
  Octets input;  // of the layer

  explicit Far(RecordLayer::Role role = RecordLayer::Role::server, const Suite& suite = aes128())
      : layer(suite, role), sealing(suite, TrafficKey::Use::seal), opening(suite, TrafficKey::Use::open) {
    const Octets theirs(size_of(suite.hash), std::byte{1});
    const Octets ours(size_of(suite.hash), std::byte{2});
    REQUIRE(layer.take_over(Secret(ours), Secret(theirs), 0));
    REQUIRE(sealing.install(Secret(theirs)));
    REQUIRE(opening.install(Secret(ours)));
  }

  void say(std::string_view content, ContentType type = ContentType::application_data) {
    const std::size_t before = input.size();
    input.resize(before + content.size() + kRecordOverhead);
    REQUIRE(sealing.seal(type, support::as_bytes(content), input.data() + before));
  }
  void say_message(std::initializer_list<int> bytes) {
    std::string content;
    for (const int byte : bytes) content += static_cast<char>(byte);
    say(content, ContentType::handshake);
  }
  void say_alert(int level, int code) {
    say(std::string{static_cast<char>(level), static_cast<char>(code)}, ContentType::alert);
  }

  RecordLayer::Step step(std::span<std::byte> room) {
    const RecordLayer::Step step = layer.read(input, room);
    input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(step.consumed));
    return step;
  }

  // What the layer makes of all that was said: the content, and the step that was not `moved`.
  std::pair<std::string, RecordLayer::Step> listen(std::size_t room_size = 20000) {
    Octets room(room_size);
    std::string heard;
    for (;;) {
      const RecordLayer::Step last = step(room);
      heard.append(reinterpret_cast<const char*>(room.data()), last.bytes);
      if (last.kind != Kind::moved) return {heard, last};
    }
  }
  RecordLayer::Step outcome() { return listen().second; }

  // What the layer writes for `content`, opened: the content of each record with its type.
  std::vector<std::pair<ContentType, std::string>> answer(std::string_view content) {
    Octets out(content.size() + kRecordOverhead + RecordLayer::kKeyUpdateRecord);
    out.resize(layer.write(support::as_bytes(content), out.data()));
    std::vector<std::pair<ContentType, std::string>> records;
    Octets room(20000);
    for (std::span<std::byte> rest(out); !rest.empty();) {
      const auto record = rest.first(RecordLayer::bytes_wanted(rest));
      const auto opened = opening.open(record, room);
      REQUIRE(opened);
      records.emplace_back(opened->type,
                           std::string(reinterpret_cast<const char*>(room.data()), opened->size));
      if (opened->type == ContentType::handshake) REQUIRE(opening.advance());
      rest = rest.subspan(record.size());
    }
    return records;
  }
};

bool violates(const RecordLayer::Step& step, AlertCode alert) {
  return step.kind == Kind::violated && step.alert == alert;
}

}  // namespace

TEST_CASE("records are those of RFC 8448, both ways", "[record_layer]") {
  Octets content(50);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i);
  RecordLayer client(aes128(), RecordLayer::Role::client);
  REQUIRE(client.take_over(Secret(kClientSecret), Secret(kServerSecret), 0));
  Octets out(200);
  out.resize(client.write(content, out.data()));
  CHECK(out == kClientRecord);

  RecordLayer server(aes128(), RecordLayer::Role::server);
  REQUIRE(server.take_over(Secret(kServerSecret), Secret(kClientSecret), 1));
  Octets room(100);
  const auto step = server.read(out, room);
  CHECK(step.kind == Kind::moved);
  CHECK(step.consumed == kClientRecord.size());
  room.resize(step.bytes);
  CHECK(room == content);
}

TEST_CASE("of the suites of TLS 1.3 the two with CCM are left to OpenSSL", "[record_layer]") {
  for (const int id : {0x1301, 0x1302, 0x1303}) CHECK(find_suite(static_cast<std::uint16_t>(id)) != nullptr);
  for (const int id : {0x1304, 0x1305, 0xc02f, 0})
    CHECK(find_suite(static_cast<std::uint16_t>(id)) == nullptr);
}

TEST_CASE("bytes arrive whole in rooms of any size, under every suite", "[record_layer]") {
  const auto id = GENERATE(0x1301, 0x1302, 0x1303);
  const std::size_t room = GENERATE(1U, 7U, 1000U, 16384U, 16385U, 20000U);
  Far far(RecordLayer::Role::server, *find_suite(static_cast<std::uint16_t>(id)));
  std::string said;
  for (const std::size_t size : {1U, 0U, 100U, 16384U, 1000U, 16383U}) {
    const std::string content = support::pattern(size, size);
    far.say(content);
    said += content;
  }
  const auto [heard, last] = far.listen(room);
  CHECK(heard == said);
  CHECK(last.kind == Kind::incomplete);
  CHECK(far.input.empty());
}

TEST_CASE("a record is read when its last byte is there, and not before", "[record_layer]") {
  Far far;
  far.say("hello");
  Octets room(100);
  const Octets whole = far.input;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Octets part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_FALSE(far.layer.can_read(part));
    CHECK(far.layer.read(part, room).kind == Kind::incomplete);
    CHECK(RecordLayer::bytes_wanted(part) == (size < kRecordHeader ? kRecordHeader : whole.size()));
  }
  CHECK(far.listen().first == "hello");
}

TEST_CASE("padding is not content, and a record of nothing else breaks the protocol", "[record_layer]") {
  Far far;
  far.say(std::string("padded\x17\0\0\0", 10), ContentType{});
  CHECK(far.listen().first == "padded");
  far.say(std::string(40, '\0'), ContentType{});
  CHECK(violates(far.outcome(), AlertCode::unexpected_message));
}

TEST_CASE("a record that was changed anywhere, repeated or left out is not authentic", "[record_layer]") {
  const std::size_t changed = GENERATE(range<std::size_t>(1, 5 + 5 + 1 + 16));
  Far far;
  far.say("hello");
  far.input[changed] ^= std::byte{1};
  const auto [heard, last] = far.listen();
  CHECK(heard.empty());
  if (changed == 3 || changed == 4) {
    CHECK(last.kind == Kind::incomplete);  // the length: more is waited for
  } else {
    CHECK(violates(last, AlertCode::bad_record_mac));
  }

  Far repeated;
  repeated.say("once");
  const Octets record = repeated.input;
  REQUIRE(repeated.listen().first == "once");
  repeated.input = record;
  CHECK(violates(repeated.outcome(), AlertCode::bad_record_mac));

  Far skipped;
  skipped.say("lost");
  skipped.input.clear();
  skipped.say("found");
  CHECK(violates(skipped.outcome(), AlertCode::bad_record_mac));
}

TEST_CASE("only protected records are taken, and none larger than allowed", "[record_layer]") {
  Octets room(100);
  for (const int type : {20, 21, 22, 24, 0, 255}) {
    Far far;
    Octets record{
        static_cast<std::byte>(type), std::byte{3}, std::byte{3}, std::byte{0}, std::byte{1}, std::byte{1}};
    CHECK(violates(far.layer.read(record, room), AlertCode::unexpected_message));
  }
  Far far;
  Octets header = from_hex("17 03 03 41 01");
  CHECK(far.layer.can_read(header));
  CHECK(violates(far.layer.read(header, room), AlertCode::record_overflow));

  Far large;
  large.say(std::string(kLargestPlaintext, 'x'));
  CHECK(large.listen().first.size() == kLargestPlaintext);
  large.say(std::string(kLargestPlaintext + 1, 'x'));
  CHECK(violates(large.outcome(), AlertCode::record_overflow));

  Far empty;
  empty.input = from_hex("17 03 03 00 00");
  CHECK(violates(empty.outcome(), AlertCode::bad_record_mac));
  Far unknown;
  unknown.say("x", ContentType{25});
  CHECK(violates(unknown.outcome(), AlertCode::unexpected_message));
}

TEST_CASE("alerts end the stream: in order, or with what the peer complains of", "[record_layer]") {
  Far far;
  far.say("bye");
  far.say_alert(1, 90);  // user_canceled
  far.say_alert(1, 0);
  const auto [heard, last] = far.listen();
  CHECK(heard == "bye");
  CHECK(last.kind == Kind::closed);

  Far fatal;
  const int level = GENERATE(1, 2);  // it means nothing in TLS 1.3
  fatal.say_alert(level, 51);
  const RecordLayer::Step step = fatal.outcome();
  CHECK(step.kind == Kind::alerted);
  CHECK(static_cast<int>(step.alert) == 51);

  for (const char* bad : {"", "\x02", "\x02\x33\x02"}) {
    Far broken;
    broken.say(bad, ContentType::alert);
    CHECK(violates(broken.outcome(), AlertCode::decode_error));
  }
}

TEST_CASE("an alert of ours can be read by the peer", "[record_layer]") {
  Far far;
  Octets out(RecordLayer::kAlertRecord);
  REQUIRE(far.layer.write_alert(AlertCode::bad_record_mac, out.data()) == out.size());
  Octets room(10);
  const auto opened = far.opening.open(out, room);
  REQUIRE(opened);
  CHECK(opened->type == ContentType::alert);
  CHECK(opened->size == 2);
  CHECK(room[0] == std::byte{2});
  CHECK(room[1] == std::byte{20});
}

TEST_CASE("a KeyUpdate changes the peer's key, and ours before the next data if it asks", "[record_layer]") {
  Far far;
  far.say("one");
  far.say_message({24, 0, 0, 1, 0});
  REQUIRE(far.sealing.advance());
  far.say("two");
  CHECK(far.listen().first == "onetwo");
  CHECK(far.answer("plain").size() == 1);

  for (int i = 0; i < 2; ++i) {
    far.say_message({24, 0, 0, 1, 1});
    REQUIRE(far.sealing.advance());
  }
  far.say("three");
  CHECK(far.listen().first == "three");
  const auto answer = far.answer("after");
  REQUIRE(answer.size() == 2);
  CHECK(answer[0] == std::pair(ContentType::handshake, std::string("\x18\0\0\1\0", 5)));
  CHECK(answer[1] == std::pair(ContentType::application_data, std::string("after")));
  CHECK(far.answer("again").size() == 1);
}

TEST_CASE("a KeyUpdate that is malformed, or does not end its record, breaks the protocol",
          "[record_layer]") {
  {
    Far far;
    far.say_message({24, 0, 0, 1, 2});
    CHECK(violates(far.outcome(), AlertCode::illegal_parameter));
  }
  {
    Far far;
    far.say_message({24, 0, 0, 2, 0, 0});
    CHECK(violates(far.outcome(), AlertCode::decode_error));
  }
  {
    Far far;
    far.say_message({24, 0, 0, 1, 0, 24, 0, 0, 1, 0});
    CHECK(violates(far.outcome(), AlertCode::unexpected_message));
  }
  {
    Far far;
    far.say("", ContentType::handshake);
    CHECK(violates(far.outcome(), AlertCode::unexpected_message));
  }
}

TEST_CASE("a message may come in pieces, but nothing else in between", "[record_layer]") {
  Far far;
  for (const int byte : {24, 0, 0, 1, 0}) far.say_message({byte});
  REQUIRE(far.sealing.advance());
  far.say("whole");
  CHECK(far.listen().first == "whole");
  far.say_message({24, 0});
  far.say("rude");
  CHECK(violates(far.outcome(), AlertCode::unexpected_message));
}

TEST_CASE("a client passes over session tickets, a server takes no message but KeyUpdate", "[record_layer]") {
  Far client(RecordLayer::Role::client);
  std::string ticket("\x04\x00\x01\x00", 4);
  ticket += std::string(256, 't');
  client.say("a");
  client.say(ticket + ticket.substr(0, 3), ContentType::handshake);
  client.say(ticket.substr(3, 100), ContentType::handshake);
  client.say(ticket.substr(103), ContentType::handshake);
  client.say("b");
  CHECK(client.listen().first == "ab");
  client.say(std::string("\x04\x00\x00\x00", 4), ContentType::handshake);
  client.say("c");
  CHECK(client.listen().first == "c");
  client.say(std::string("\x04\x01\x00\x01", 4), ContentType::handshake);
  CHECK(violates(client.outcome(), AlertCode::decode_error));

  for (const int type : {4, 1, 11, 20, 0, 254}) {
    Far server;
    server.say_message({type, 0, 0, 0});
    CHECK(violates(server.outcome(), AlertCode::unexpected_message));
  }
}

TEST_CASE("a peer that only ever says nothing is ended", "[record_layer]") {
  const bool updates = GENERATE(false, true);
  Far far;
  const auto say_nothing = [&] {
    if (!updates) return far.say("");
    far.say_message({24, 0, 0, 1, 0});
    REQUIRE(far.sealing.advance());
  };
  for (int i = 0; i < 32; ++i) say_nothing();
  far.say("x");
  for (int i = 0; i < 32; ++i) say_nothing();
  CHECK(far.listen().first == "x");
  say_nothing();
  CHECK(violates(far.outcome(), AlertCode::unexpected_message));
}

TEST_CASE("a key that has protected its share of records is changed", "[record_layer]") {
  Suite short_lived = aes128();
  short_lived.records_per_key = 3;
  Far far(RecordLayer::Role::server, short_lived);
  std::string heard;
  int updates = 0;
  for (int i = 0; i < 10; ++i) {
    for (const auto& [type, content] : far.answer("x")) {
      if (type == ContentType::application_data) heard += content;
      if (type == ContentType::handshake) ++updates;
    }
  }
  CHECK(heard == "xxxxxxxxxx");
  CHECK(updates == 3);
}

TEST_CASE("random input is refused and never read as anything", "[record_layer]") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Far far;
    far.input.resize(random() % 600);
    for (std::byte& byte : far.input) byte = static_cast<std::byte>(random());
    if (far.input.size() > 2 && random() % 4 != 0) {
      far.input[0] = std::byte{23};
      if (far.input.size() > 4) far.input[3] = std::byte{0};
    }
    const auto [heard, last] = far.listen(1 + random() % 50);
    CHECK(heard.empty());
    CHECK((last.kind == Kind::incomplete || last.kind == Kind::violated));
  }
}
