// What the kernel reports about a socket in error, in a form that libevent passes on.
#pragma once

namespace tlsproxy::loop {

// Makes libevent see an error as the end of both directions (see epoll_report.cc). Has its effect by being
// linked; called so that it is.
void use_epoll_report();

}  // namespace tlsproxy::loop
