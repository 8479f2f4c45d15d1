#include "base/strings.h"

#include <algorithm>
#include <numeric>

namespace tlsproxy::base {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

// Edits that turn `a` into `b`: a letter added, dropped or changed, or two neighbours swapped (optimal
// string alignment). Gives up with `limit` as soon as no end below it is possible.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  const std::size_t longer = std::max(a.size(), b.size());
  if (longer - std::min(a.size(), b.size()) >= limit) return limit;
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    // A swap reaches two rows back, so one row without hope is not enough.
    const std::size_t hope =
        std::min(*std::min_element(row.begin(), row.end()), *std::min_element(last.begin(), last.end()));
    if (hope >= limit) return limit;
  }
  return std::min(row.back(), limit);
}

}  // namespace

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  // One slip is likely in a word of any length, but a word of one letter has nothing left then.
  std::size_t best_distance = word.size() < 2 ? 1 : std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate, best_distance);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string escape(std::string_view bytes, std::size_t limit) {
  std::string safe;
  safe.reserve(std::min(bytes.size(), limit) + 8);
  for (const char c : bytes.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      safe += '\\';
      safe += c;
    } else if (byte >= 0x20 && byte < 0x7f) {
      safe += c;
    } else {
      safe += "\\x";
      safe += kHexDigits[byte >> 4];
      safe += kHexDigits[byte & 15];
    }
  }
  if (bytes.size() > limit) safe += "...";
  return safe;
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kHexDigits[byte >> 4];
    hex += kHexDigits[byte & 15];
  }
  return hex;
}

}  // namespace tlsproxy::base
