#include "config/units.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>

#include "base/strings.h"

namespace tlsproxy::config {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// From large to small, the order in which a combination must have them.
constexpr Unit kDurationUnits[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1},
};
constexpr std::uint64_t kLongest = 365 * 86'400'000ULL;

constexpr Unit kSizeUnits[] = {
    {"g", 1024ULL * 1024 * 1024},
    {"gib", 1024ULL * 1024 * 1024},
    {"m", 1024ULL * 1024},
    {"mib", 1024ULL * 1024},
    {"k", 1024},
    {"kib", 1024},
};
constexpr std::uint64_t kLargest = 1024ULL * 1024 * 1024 * 1024;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string quoted(std::string_view text) {
  return "'" + base::escape(text, 64) + "'";
}

std::size_t count_digits(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

// All digits of `digits`; nothing when the value does not fit.
std::optional<std::uint64_t> to_integer(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

bool looks_octal(std::string_view digits) {
  return digits.size() > 1 && digits[0] == '0';
}

// What makes `text` no plain decimal number, or nothing.
std::optional<std::string> oddity(std::string_view text) {
  if (text.starts_with('-')) return " is negative";
  if (text.starts_with('+')) return " has a sign";
  if (text.starts_with("0x") || text.starts_with("0X")) return " is hexadecimal; numbers are decimal here";
  if (text.starts_with("0o") || text.starts_with("0O")) return " is octal; numbers are decimal here";
  if (looks_octal(text.substr(0, count_digits(text)))) {
    return " has a leading zero and could be read as octal; write the number without it";
  }
  const std::size_t digits = count_digits(text);
  if (digits == 0) return std::nullopt;
  if (text.size() > digits && text[digits] == '.') return " has a fraction; only whole numbers are taken";
  if (text.size() > digits + 1 && (text[digits] == 'e' || text[digits] == 'E') &&
      (is_digit(text[digits + 1]) || text[digits + 1] == '+' || text[digits + 1] == '-')) {
    return " has an exponent; write the number out";
  }
  if (text.size() > digits && text[digits] == '_') return " has an underscore; write the digits alone";
  return std::nullopt;
}

const Unit* next_duration_unit(const Unit* from, std::string_view name) {
  return std::find_if(from, std::end(kDurationUnits), [&](const Unit& unit) { return unit.name == name; });
}

}  // namespace

base::Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr std::string_view kForm = "a duration is a number with ms, s, m, h or d, as in 30s or 1h30m";
  std::uint64_t total = 0;
  const Unit* unit = std::begin(kDurationUnits);
  std::string_view rest = text;
  do {
    if (const auto odd = oddity(rest)) return base::failure(quoted(text) + *odd);
    const std::size_t digits = count_digits(rest);
    if (digits == 0) return base::failure(quoted(text) + " is not a duration: " + std::string(kForm));
    const auto value = to_integer(rest.substr(0, digits));
    const std::string_view after = rest.substr(digits);
    const auto letters =
        static_cast<std::size_t>(std::find_if(after.begin(), after.end(), is_digit) - after.begin());
    const std::string_view name = after.substr(0, letters);
    if (name.empty()) return base::failure(quoted(text) + " has no unit: " + std::string(kForm));
    const Unit* found = next_duration_unit(std::begin(kDurationUnits), name);
    if (found == std::end(kDurationUnits)) {
      return base::failure(quoted(text) + " has the unknown unit " + quoted(name) + ": " +
                           std::string(kForm));
    }
    if (found < unit) return base::failure(quoted(text) + " is not in order: large units first, each once");
    if (!value || *value > kLongest / found->factor)
      return base::failure(quoted(text) + " is more than 365d");
    total += *value * found->factor;
    unit = found + 1;
    rest = after.substr(letters);
  } while (!rest.empty());
  if (total == 0) return base::failure(quoted(text) + " is zero; a duration here is more than that");
  if (total > kLongest) return base::failure(quoted(text) + " is more than 365d");
  return std::chrono::milliseconds(total);
}

std::string duration_text(std::chrono::milliseconds duration) {
  const auto value = static_cast<std::uint64_t>(duration.count());
  const Unit* unit = std::find_if(std::begin(kDurationUnits), std::end(kDurationUnits),
                                  [&](const Unit& u) { return value % u.factor == 0; });
  return std::to_string(value / unit->factor) + std::string(unit->name);
}

base::Result<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kForm = "a size is a number with k, M or G (times 1024), as in 16k";
  if (const auto odd = oddity(text)) return base::failure(quoted(text) + *odd);
  const std::size_t digits = count_digits(text);
  if (digits == 0) return base::failure(quoted(text) + " is not a size: " + std::string(kForm));
  const std::string_view name = text.substr(digits);
  if (name.empty()) return base::failure(quoted(text) + " has no unit: " + std::string(kForm));
  const std::string lower = base::to_lower(name);
  const Unit* unit = std::find_if(std::begin(kSizeUnits), std::end(kSizeUnits),
                                  [&](const Unit& u) { return u.name == lower; });
  if (unit == std::end(kSizeUnits)) {
    return base::failure(quoted(text) + " has the unknown unit " + quoted(name) + ": " + std::string(kForm));
  }
  const auto value = to_integer(text.substr(0, digits));
  if (!value || *value > kLargest / unit->factor) return base::failure(quoted(text) + " is more than 1024G");
  if (*value == 0) return base::failure(quoted(text) + " is zero; a size here is more than that");
  return *value * unit->factor;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes % (1024ULL * 1024 * 1024) == 0) return std::to_string(bytes >> 30U) + "G";
  if (bytes % (1024ULL * 1024) == 0) return std::to_string(bytes >> 20U) + "M";
  return std::to_string(bytes >> 10U) + "k";
}

base::Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t least, std::uint64_t most) {
  if (const auto odd = oddity(text)) return base::failure(quoted(text) + *odd);
  if (text.empty() || count_digits(text) != text.size()) {
    return base::failure(quoted(text) + " is not a whole number");
  }
  const auto value = to_integer(text);
  if (!value || *value < least || *value > most) {
    return base::failure(quoted(text) + " is not between " + std::to_string(least) + " and " +
                         std::to_string(most));
  }
  return *value;
}

}  // namespace tlsproxy::config
