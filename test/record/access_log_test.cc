#include "record/access_log.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace tlsproxy;
using namespace std::chrono_literals;
using config::LogFormat;
using record::format_line;
using record::SessionRecord;

namespace {

os::SocketAddress address(std::string_view text) {
  return os::SocketAddress::parse(text).value();
}

// A session that knows every fact.
SessionRecord full_record() {
  const SessionRecord::Clock::time_point start{1h};
  SessionRecord record;
  record.id = 0x1a2b3c;
  record.started_at = std::chrono::system_clock::time_point(1796040000s + 7ms);
  record.listener = "web";
  record.route = "pay";
  record.client = address("192.0.2.7:50000");
  record.local = address("[2001:db8::1]:443");
  record.server = address("unix:/run/pay.sock");
  record.sni = "pay.example.com";
  record.alpn = "h2";
  record.tls = record::TlsFacts{"TLSv1.3", "TLS_AES_128_GCM_SHA256", "x25519", true};
  record.client_subject = "CN=Jane Doe,O=Example";
  record.verify_error = "certificate revoked";
  record.alert = record::TlsAlert{"certificate_revoked", true, record::Side::client};
  record.bytes_from_client = 1;
  record.bytes_to_client = 22;
  record.bytes_from_backend = 333;
  record.bytes_to_backend = 18446744073709551615U;
  record.tries = 2;
  record.start = start;
  record.handshake_done = start + 1500us;
  record.connect_start = start + 2ms;
  record.connect_done = start + 12345us;
  record.first_byte = start + 3ms;
  record.end = start + 61s;
  record.reason = record::CloseReason::certificate_rejected;
  record.side = record::Side::client;
  return record;
}

// What remains of a record whose connection sent nothing.
SessionRecord bare_record() {
  SessionRecord record;
  record.started_at = std::chrono::system_clock::time_point(1796040000s);
  record.listener = "web";
  record.client = address("192.0.2.7:50000");
  record.local = address("192.0.2.1:443");
  record.reason = record::CloseReason::preread_timeout;
  return record;
}

bool safe_for_a_terminal(std::string_view line) {
  for (const char c : line) {
    if (c < 0x20 || c > 0x7e) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a logfmt line has every fact, in a fixed order", "[access_log]") {
  CHECK(format_line(full_record(), LogFormat::logfmt) ==
        "time=2026-11-30T12:00:00.007Z id=00000000001a2b3c listener=web client=192.0.2.7:50000 "
        "local=[2001:db8::1]:443 sni=pay.example.com alpn=h2 tls=TLSv1.3 cipher=TLS_AES_128_GCM_SHA256 "
        "group=x25519 resumed=true client_cert=\"CN=Jane Doe,O=Example\" route=pay server=unix:/run/pay.sock "
        "bytes_from_client=1 bytes_to_client=22 bytes_from_backend=333 "
        "bytes_to_backend=18446744073709551615 tries=2 handshake_ms=1.500 connect_ms=10.345 "
        "first_byte_ms=1.000 total_ms=61000.000 reason=certificate_rejected side=client "
        "alert=certificate_revoked alert_dir=sent alert_leg=client verify_error=\"certificate revoked\"");
}

TEST_CASE("a json line has the same facts in the same order, numbers as numbers", "[access_log]") {
  CHECK(format_line(full_record(), LogFormat::json) ==
        R"({"time":"2026-11-30T12:00:00.007Z","id":"00000000001a2b3c","listener":"web",)"
        R"("client":"192.0.2.7:50000","local":"[2001:db8::1]:443","sni":"pay.example.com","alpn":"h2",)"
        R"("tls":"TLSv1.3","cipher":"TLS_AES_128_GCM_SHA256","group":"x25519","resumed":true,)"
        R"("client_cert":"CN=Jane Doe,O=Example","route":"pay","server":"unix:/run/pay.sock",)"
        R"("bytes_from_client":1,"bytes_to_client":22,"bytes_from_backend":333,)"
        R"("bytes_to_backend":18446744073709551615,"tries":2,"handshake_ms":1.5,"connect_ms":10.345,)"
        R"("first_byte_ms":1.0,"total_ms":61000.0,"reason":"certificate_rejected","side":"client",)"
        R"("alert":"certificate_revoked","alert_dir":"sent","alert_leg":"client",)"
        R"("verify_error":"certificate revoked"})");
}

TEST_CASE("a fact that is absent is left out", "[access_log]") {
  CHECK(format_line(bare_record(), LogFormat::logfmt) ==
        "time=2026-11-30T12:00:00.000Z id=0000000000000000 listener=web client=192.0.2.7:50000 "
        "local=192.0.2.1:443 bytes_from_client=0 bytes_to_client=0 bytes_from_backend=0 bytes_to_backend=0 "
        "tries=0 total_ms=0.000 reason=preread_timeout side=proxy");
}

TEST_CASE("a built-in backend's first byte is counted from the accept", "[access_log]") {
  SessionRecord record = bare_record();
  record.first_byte = record.start + 4ms;
  CHECK(format_line(record, LogFormat::logfmt).find(" first_byte_ms=4.000 ") != std::string::npos);
}

TEST_CASE("logfmt quotes a value that could be taken for something else", "[access_log]") {
  struct Case {
    std::string value;
    std::string written;
  };
  const std::vector<Case> cases{
      {"plain-1.example", "plain-1.example"},
      {"two words", R"("two words")"},
      {"a=b", R"("a=b")"},
      {R"(say "hi")", R"("say \"hi\"")"},
      {R"(back\slash)", R"("back\\slash")"},
      {"line\nreason=finished", R"("line\x0areason=finished")"},
      {"\x1b[2J\x07", R"("\x1b[2J\x07")"},
      {std::string("nul\0nul", 7), R"("nul\x00nul")"},
      {"caf\xc3\xa9", R"("caf\xc3\xa9")"},
      {"\xff\xfe", R"("\xff\xfe")"},
      {"del\x7f", R"("del\x7f")"},
  };
  for (const Case& given : cases) {
    SessionRecord record = bare_record();
    record.sni = given.value;
    record.alpn = given.value;
    record.client_subject = given.value;
    const std::string line = format_line(record, LogFormat::logfmt);
    INFO(line);
    for (const char* key : {" sni=", " alpn=", " client_cert="}) {
      CHECK(line.find(key + given.written + " ") != std::string::npos);
    }
    CHECK(safe_for_a_terminal(line));
  }
}

TEST_CASE("a json line is valid and safe for a terminal, whatever a peer sent", "[access_log]") {
  struct Case {
    std::string value;
    std::string read_back;
  };
  const std::vector<Case> cases{
      {R"(say "hi" \)", R"(say "hi" \)"},
      {"line\n\",\"reason\":\"finished", "line\n\",\"reason\":\"finished"},
      {"\x1b[2J\x7f", "\x1b[2J\x7f"},
      {std::string("nul\0nul", 7), std::string("nul\0nul", 7)},
      {"caf\xc3\xa9", R"(caf\xc3\xa9)"},
      {"\xff\xfe broken", R"(\xff\xfe broken)"},
  };
  for (const Case& given : cases) {
    SessionRecord record = bare_record();
    record.sni = given.value;
    record.alpn = given.value;
    record.client_subject = given.value;
    const std::string line = format_line(record, LogFormat::json);
    INFO(line);
    CHECK(safe_for_a_terminal(line));
    const auto parsed = nlohmann::json::parse(line);
    for (const char* key : {"sni", "alpn", "client_cert"}) CHECK(parsed.at(key) == given.read_back);
    CHECK(parsed.at("reason") == "preread_timeout");
  }
}

TEST_CASE("a value too long for a line is cut, and the cut is shown", "[access_log]") {
  SessionRecord record = bare_record();
  record.client_subject = "CN=" + std::string(100000, 'x');
  for (const LogFormat format : {LogFormat::logfmt, LogFormat::json}) {
    const std::string line = format_line(record, format);
    CHECK(line.size() < 2048);
    CHECK(line.find("xxx...\"") != std::string::npos);
  }
}

TEST_CASE("every reason and side can be written in both formats", "[access_log]") {
  SessionRecord record = bare_record();
  for (int i = 0; i < record::kCloseReasons; ++i) {
    record.reason = static_cast<record::CloseReason>(i);
    for (const record::Side side : {record::Side::client, record::Side::backend, record::Side::proxy}) {
      record.side = side;
      const std::string end =
          "reason=" + std::string(to_string(record.reason)) + " side=" + std::string(to_string(side));
      REQUIRE(format_line(record, LogFormat::logfmt).ends_with(end));
      const auto parsed = nlohmann::json::parse(format_line(record, LogFormat::json));
      REQUIRE(parsed.at("reason") == std::string(to_string(record.reason)));
      REQUIRE(parsed.at("side") == std::string(to_string(side)));
    }
  }
}
