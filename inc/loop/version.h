// Which event library this process runs with.
#pragma once

#include <string>

namespace tlsproxy::loop {

// Of the library that was loaded: "libevent 2.1.12-stable".
std::string library_version();

}  // namespace tlsproxy::loop
