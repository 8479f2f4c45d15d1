// Units: durations, sizes and whole numbers as a configuration writes them. Pure.
//
// A unit is always required: nobody should have to know whether 5 means seconds or milliseconds. What
// other readers would take for another number (octal, hexadecimal, floats) is refused by name.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tlsproxy::config {

// "1500ms", "30s", "10m", "2h", "7d" or a combination from large to small, each unit once: "1h30m".
// More than zero, at most 365 days.
base::Result<std::chrono::milliseconds> parse_duration(std::string_view text);

// The shortest form with one unit that is exact: "90s", "10m". parse_duration() reads it back.
std::string duration_text(std::chrono::milliseconds duration);

// "16k", "512M", "1G": times 1024, in either case and also as KiB, MiB, GiB. More than zero, at most
// 1024 G.
base::Result<std::uint64_t> parse_size(std::string_view text);

// The largest unit that is exact; `bytes` must be a multiple of 1024.
std::string size_text(std::uint64_t bytes);

// Decimal digits without sign or leading zeros, `least` to `most`.
base::Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t least, std::uint64_t most);

}  // namespace tlsproxy::config
