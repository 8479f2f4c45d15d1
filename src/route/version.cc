#include "route/version.h"

#include <ares.h>

namespace tlsproxy::route {

std::string library_version() {
  return std::string("c-ares ") + ares_version(nullptr);
}

}  // namespace tlsproxy::route
