#include "base/result.h"

#include <system_error>

namespace tlsproxy::base {

tl::unexpected<Error> system_failure(const std::string& what, int error_number) {
  return failure(what + ": " + std::generic_category().message(error_number));
}

}  // namespace tlsproxy::base
