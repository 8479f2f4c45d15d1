#include "server/overrides.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tlsproxy::server {
namespace {

constexpr std::string_view kBlocks = "TLSPROXY_BLOCKS";
constexpr std::string_view kSplice = "TLSPROXY_SPLICE";

// The value of a variable that is set and not empty.
std::optional<std::string_view> variable(std::string_view name) {
  const char* value = std::getenv(name.data());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<buffer::BlockPool::Capacities> parse_blocks(std::string_view text) {
  buffer::BlockPool::Capacities sizes{};
  const char* place = text.data();
  const char* const end = place + text.size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0 && (place == end || *place++ != ',')) return std::nullopt;
    const auto [after, error] = std::from_chars(place, end, sizes[i]);
    if (error != std::errc{}) return std::nullopt;
    place = after;
  }
  const bool grow = std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>{}) == sizes.end();
  if (place != end || sizes.front() == 0 || !grow) return std::nullopt;
  // The framing of a block is counted for this size.
  if (sizes.back() > buffer::BlockPool::kCapacities.back()) return std::nullopt;
  return sizes;
}

}  // namespace

base::Result<Overrides> Overrides::from_environment() {
  Overrides overrides;
  if (const auto text = variable(kBlocks)) {
    const auto sizes = parse_blocks(*text);
    if (!sizes) {
      return base::failure(
          fmt::format("{}: '{}' is not three growing sizes in bytes, at most {}, as in 64,512,65536", kBlocks,
                      *text, buffer::BlockPool::kCapacities.back()));
    }
    overrides.blocks = *sizes;
  }
  if (const auto text = variable(kSplice)) {
    if (*text != "always" && *text != "never") {
      return base::failure(fmt::format("{}: '{}' is neither always nor never", kSplice, *text));
    }
    overrides.splice = *text == "always" ? relay::SpliceWhen::always : relay::SpliceWhen::never;
  }
  return overrides;
}

}  // namespace tlsproxy::server
