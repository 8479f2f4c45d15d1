#include "config/units.h"

#include <string>

#include "support/catch.h"

using namespace tlsproxy;
using namespace std::chrono_literals;
using config::duration_text;
using config::parse_duration;
using config::parse_number;
using config::parse_size;
using config::size_text;

namespace {

template <class T>
std::string reason(const base::Result<T>& result) {
  return result ? "" : result.error().message;
}

}  // namespace

TEST_CASE("a duration is what its units say", "[units]") {
  CHECK(parse_duration("1ms").value() == 1ms);
  CHECK(parse_duration("1500ms").value() == 1500ms);
  CHECK(parse_duration("30s").value() == 30s);
  CHECK(parse_duration("10m").value() == 10min);
  CHECK(parse_duration("2h").value() == 2h);
  CHECK(parse_duration("7d").value() == 7 * 24h);
  CHECK(parse_duration("1h30m").value() == 90min);
  CHECK(parse_duration("1d2h3m4s5ms").value() == 26h + 3min + 4s + 5ms);
  CHECK(parse_duration("365d").value() == 365 * 24h);
  CHECK(parse_duration("0h1s").value() == 1s);
}

TEST_CASE("a duration without a clear meaning is refused with the reason", "[units]") {
  const auto [text, why] = GENERATE(table<std::string, std::string>({
      {"5", "no unit"},
      {"0", "no unit"},
      {"1h30", "no unit"},
      {"0s", "zero"},
      {"0h0m", "zero"},
      {"", "not a duration"},
      {"s", "not a duration"},
      {"soon", "not a duration"},
      {" 5s", "not a duration"},
      {"5 s", "unknown unit ' s'"},
      {"5s ", "unknown unit 's '"},
      {"5sec", "unknown unit 'sec'"},
      {"5M", "unknown unit 'M'"},
      {"5us", "unknown unit 'us'"},
      {"-5s", "negative"},
      {"+5s", "sign"},
      {"05s", "leading zero"},
      {"1h05m", "leading zero"},
      {"0x5s", "hexadecimal"},
      {"1.5h", "fraction"},
      {"1e3s", "exponent"},
      {"1_000s", "underscore"},
      {"30m1h", "not in order"},
      {"1s1s", "not in order"},
      {"366d", "more than 365d"},
      {"365d1ms", "more than 365d"},
      {"99999999999999999999s", "more than 365d"},
      {"18446744073709551615d", "more than 365d"},
  }));
  INFO(text);
  const auto result = parse_duration(text);
  REQUIRE_FALSE(result);
  INFO(reason(result));
  CHECK(reason(result).find(why) != std::string::npos);
}

TEST_CASE("a duration is written in its largest exact unit and read back", "[units]") {
  CHECK(duration_text(1500ms) == "1500ms");
  CHECK(duration_text(90s) == "90s");
  CHECK(duration_text(600s) == "10m");
  CHECK(duration_text(24h) == "1d");
  for (const auto duration : {1ms, 999ms, 1000ms, 61000ms, 5400000ms, 31536000000ms}) {
    CHECK(parse_duration(duration_text(duration)).value() == duration);
  }
}

TEST_CASE("a size is its number times a power of 1024", "[units]") {
  CHECK(parse_size("1k").value() == 1024);
  CHECK(parse_size("16K").value() == 16384);
  CHECK(parse_size("16KiB").value() == 16384);
  CHECK(parse_size("512M").value() == 512U * 1024 * 1024);
  CHECK(parse_size("512MiB").value() == 512U * 1024 * 1024);
  CHECK(parse_size("2g").value() == 2ULL * 1024 * 1024 * 1024);
  CHECK(parse_size("1024GiB").value() == 1024ULL * 1024 * 1024 * 1024);
}

TEST_CASE("a size without a clear meaning is refused with the reason", "[units]") {
  const auto [text, why] = GENERATE(table<std::string, std::string>({
      {"512", "no unit"},
      {"0", "no unit"},
      {"0k", "zero"},
      {"", "not a size"},
      {"k", "not a size"},
      {"16kB", "unknown unit 'kB'"},
      {"16B", "unknown unit 'B'"},
      {"16T", "unknown unit 'T'"},
      {"16 k", "unknown unit ' k'"},
      {"1.5M", "fraction"},
      {"-1k", "negative"},
      {"010k", "leading zero"},
      {"0x10k", "hexadecimal"},
      {"1025G", "more than 1024G"},
      {"99999999999999999999k", "more than 1024G"},
  }));
  INFO(text);
  const auto result = parse_size(text);
  REQUIRE_FALSE(result);
  INFO(reason(result));
  CHECK(reason(result).find(why) != std::string::npos);
}

TEST_CASE("a size is written in its largest exact unit and read back", "[units]") {
  CHECK(size_text(1024) == "1k");
  CHECK(size_text(1024 * 1024) == "1M");
  CHECK(size_text(1536 * 1024) == "1536k");
  CHECK(size_text(1ULL << 40U) == "1024G");
  for (const std::uint64_t size : {1024ULL, 5120ULL, 3ULL << 20U, 7ULL << 30U}) {
    CHECK(parse_size(size_text(size)).value() == size);
  }
}

TEST_CASE("a number is decimal digits within its range", "[units]") {
  CHECK(parse_number("0", 0, 9).value() == 0);
  CHECK(parse_number("9", 0, 9).value() == 9);
  CHECK(parse_number("65535", 1, 65535).value() == 65535);
  CHECK(parse_number("18446744073709551615", 0, UINT64_MAX).value() == UINT64_MAX);
}

TEST_CASE("a number that looks like another one is refused with the reason", "[units]") {
  const auto [text, why] = GENERATE(table<std::string, std::string>({
      {"0443", "leading zero"},
      {"08", "leading zero"},
      {"00", "leading zero"},
      {"0x1F", "hexadecimal"},
      {"0o17", "octal"},
      {"1.0", "fraction"},
      {"1e3", "exponent"},
      {"1E+3", "exponent"},
      {"1_000", "underscore"},
      {"-1", "negative"},
      {"+1", "sign"},
      {"", "not a whole number"},
      {"one", "not a whole number"},
      {"1 ", "not a whole number"},
      {"1k", "not a whole number"},
      {"1001", "not between 1 and 1000"},
      {"0", "not between 1 and 1000"},
      {"99999999999999999999", "not between 1 and 1000"},
  }));
  INFO(text);
  const auto result = parse_number(text, 1, 1000);
  REQUIRE_FALSE(result);
  INFO(reason(result));
  CHECK(reason(result).find(why) != std::string::npos);
}
