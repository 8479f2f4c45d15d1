// Which TLS library this process runs with.
#pragma once

#include <string>

namespace tlsproxy::tls {

// Of the library that was loaded, which may be newer than the headers: "OpenSSL 3.0.20 7 Apr 2026".
std::string library_version();

}  // namespace tlsproxy::tls
