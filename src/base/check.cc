#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tlsproxy::base {

void check_failed(const char* file, int line, const char* belief) noexcept {
  std::fprintf(stderr, "tlsproxy: broken belief at %s:%d: %s\n", file, line, belief);
  std::abort();
}

}  // namespace tlsproxy::base
