#include "loop/version.h"

#include <event2/event.h>

namespace tlsproxy::loop {

std::string library_version() {
  return std::string("libevent ") + event_get_version();
}

}  // namespace tlsproxy::loop
