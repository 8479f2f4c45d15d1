// Small text tools that more than one floor needs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tlsproxy::base {

// ASCII letters in lower case, every other byte unchanged (host names, RFC 4343).
std::string to_lower(std::string_view text);

// The candidate nearest to `word` by edit distance, or an empty view when none is near enough to be
// a likely slip of the keyboard (more than a third of the word's letters differ, though one slip is
// granted to short words). Two neighbours swapped are one slip. The first of equally near ones.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

// `bytes` made safe for one line of a log: printable ASCII as it is, `"` and `\` with a backslash,
// everything else as \xHH; cut after `limit` input bytes, the cut marked by "...".
std::string escape(std::string_view bytes, std::size_t limit = 256);

// Lower-case hexadecimal digits, two per byte.
std::string to_hex(std::string_view bytes);

}  // namespace tlsproxy::base
