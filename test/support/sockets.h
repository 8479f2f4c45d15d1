// Connected stream sockets and plain byte helpers for tests.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "os/fd.h"

namespace tlsproxy::support {

// Two ends of one connection, both non-blocking. TCP over loopback when `tcp`, else a unix pair.
std::pair<os::Fd, os::Fd> connected_pair(bool tcp = false);

// Everything there is to read now, without waiting.
std::string read_available(int fd);

// Writes all or fails the test's belief by returning false.
bool write_all(int fd, std::string_view bytes);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Bytes that differ from place to place, so that a swap or a gap shows.
std::string pattern(std::size_t size, std::uint64_t seed = 1);

}  // namespace tlsproxy::support
