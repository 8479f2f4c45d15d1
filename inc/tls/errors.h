// take_errors: what OpenSSL says went wrong, for a line of text.
//
// OpenSSL keeps a queue of errors per thread, and what one call leaves there misleads the next reader
// (SSL_get_error looks at it). So whoever sees a call fail takes the queue's content, all of it.
#pragma once

#include <string>

namespace tlsproxy::tls {

// The oldest errors of OpenSSL's queue as one line of text, and an empty queue. Each is its reason with
// the detail OpenSSL added, "no cipher match; bad password read"; empty when the queue was.
std::string take_errors();

}  // namespace tlsproxy::tls
