// CHECK and DCHECK: beliefs that hold unless we have a fault of our own.
//
// CHECK runs in every build and guards what would corrupt memory or leak bytes across sessions.
// DCHECK runs in builds without NDEBUG and may stand densely on hot paths. The message is the
// belief, in words. Neither may depend on anything a peer or the network can cause.
#pragma once

namespace tlsproxy::base {

// Prints the broken belief with its place to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* belief) noexcept;

}  // namespace tlsproxy::base

#define TLSPROXY_CHECK(condition, belief)                                         \
  do {                                                                            \
    if (!(condition)) ::tlsproxy::base::check_failed(__FILE__, __LINE__, belief); \
  } while (false)

#ifdef NDEBUG
#define TLSPROXY_DCHECK(condition, belief) \
  do {                                     \
    if (false && !(condition)) {           \
    }                                      \
  } while (false)
#else
#define TLSPROXY_DCHECK(condition, belief) TLSPROXY_CHECK(condition, belief)
#endif
