// Which resolver library this process runs with.
#pragma once

#include <string>

namespace tlsproxy::route {

// Of the library that was loaded: "c-ares 1.18.1".
std::string library_version();

}  // namespace tlsproxy::route
