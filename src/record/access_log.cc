#include "record/access_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/strings.h"

namespace tlsproxy::record {
namespace {

// Names are shorter; what is cut is a certificate subject made to fill the disk.
constexpr std::size_t kTextLimit = 1024;

class LogfmtWriter {
 public:
  void text(std::string_view key, std::string_view value) {
    const std::string safe = base::escape(value, kTextLimit);
    const bool bare = !safe.empty() && safe == value && safe.find_first_of(" =") == std::string::npos;
    add(key, bare ? safe : '"' + safe + '"');
  }
  void number(std::string_view key, std::uint64_t value) { add(key, fmt::to_string(value)); }
  void milliseconds(std::string_view key, double value) { add(key, fmt::format("{:.3f}", value)); }
  void flag(std::string_view key, bool value) { add(key, value ? "true" : "false"); }

  std::string line() { return std::move(line_); }

 private:
  void add(std::string_view key, std::string_view value) {
    fmt::format_to(std::back_inserter(line_), "{}{}={}", line_.empty() ? "" : " ", key, value);
  }

  std::string line_;
};

class JsonWriter {
 public:
  // JSON escapes ASCII by itself, and keeps it exact. Other bytes may be no UTF-8, or what looks like
  // something else on a screen: such a value is written as in logfmt.
  void text(std::string_view key, std::string_view value) {
    const bool ascii =
        std::all_of(value.begin(), value.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    add(key, ascii && value.size() <= kTextLimit ? std::string(value) : base::escape(value, kTextLimit));
  }
  void number(std::string_view key, std::uint64_t value) { add(key, value); }
  void milliseconds(std::string_view key, double value) { add(key, value); }
  void flag(std::string_view key, bool value) { add(key, value); }

  std::string line() { return facts_.dump(-1, ' ', /*ensure_ascii=*/true); }

 private:
  template <class Value>
  void add(std::string_view key, Value&& value) {
    facts_[std::string(key)] = std::forward<Value>(value);
  }

  nlohmann::ordered_json facts_ = nlohmann::ordered_json::object();
};

std::string rfc3339(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), milliseconds.count());
}

double between(SessionRecord::Clock::time_point from, SessionRecord::Clock::time_point to) {
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(to - from);
  return static_cast<double>(microseconds.count()) / 1000;
}

// The facts in the order of the line. What a field means is documented in tlsproxy(8).
template <class Writer>
std::string describe(const SessionRecord& record) {
  Writer out;
  const auto text = [&out](std::string_view key, std::string_view value) {
    if (!value.empty()) out.text(key, value);
  };
  text("time", rfc3339(record.started_at));
  text("id", fmt::format("{:016x}", record.id));
  text("listener", record.listener);
  text("client", record.client.to_string());
  text("local", record.local.to_string());
  text("sni", record.sni);
  text("alpn", record.alpn);
  if (record.tls) {
    text("tls", record.tls->version);
    text("cipher", record.tls->cipher);
    text("group", record.tls->group);
    out.flag("resumed", record.tls->resumed);
  }
  text("client_cert", record.client_subject);
  text("route", record.route);
  text("server", record.server.to_string());
  out.number("bytes_from_client", record.bytes_from_client);
  out.number("bytes_to_client", record.bytes_to_client);
  out.number("bytes_from_backend", record.bytes_from_backend);
  out.number("bytes_to_backend", record.bytes_to_backend);
  out.number("tries", record.tries);
  if (record.handshake_done) out.milliseconds("handshake_ms", between(record.start, *record.handshake_done));
  if (record.connect_start && record.connect_done) {
    out.milliseconds("connect_ms", between(*record.connect_start, *record.connect_done));
  }
  if (record.first_byte) {
    out.milliseconds("first_byte_ms",
                     between(record.connect_start.value_or(record.start), *record.first_byte));
  }
  out.milliseconds("total_ms", between(record.start, record.end));
  text("reason", to_string(record.reason));
  text("side", to_string(record.side));
  if (record.alert) {
    text("alert", record.alert->description);
    text("alert_dir", record.alert->sent ? "sent" : "received");
    text("alert_leg", to_string(record.alert->leg));
  }
  text("verify_error", record.verify_error);
  return out.line();
}

}  // namespace

std::string format_line(const SessionRecord& record, config::LogFormat format) {
  switch (format) {
    case config::LogFormat::logfmt:
      return describe<LogfmtWriter>(record);
    case config::LogFormat::json:
      return describe<JsonWriter>(record);
  }
  return {};
}

}  // namespace tlsproxy::record
