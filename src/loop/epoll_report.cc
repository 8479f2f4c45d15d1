// libevent's epoll back end (2.1.12, epoll_dispatch) turns EPOLLERR into "readable and writable" and drops
// the EPOLLRDHUP beside it. That is also the report of any ordinary edge on a writable socket, so a reset
// that arrives together with the last bytes would look like those bytes alone: the short read that takes them
// counts as drained (transport/socket.h), and no second edge ever comes. An extra read after every short one
// would find out, at the price of one system call per message.
//
// So the program defines epoll_wait itself, which the dynamic linker gives to libevent in place of libc's,
// and reports an error as what it is to us: the end of both directions. The read that follows learns the
// errno.
#include "loop/epoll_report.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int epoll_wait(int epfd, epoll_event* events, int maxevents, int timeout) {
  const auto count =
      static_cast<int>(::syscall(SYS_epoll_pwait, epfd, events, maxevents, timeout, nullptr, 0));
  for (int i = 0; i < count; ++i) {
    if ((events[i].events & EPOLLERR) == 0) continue;
    events[i].events &= ~static_cast<unsigned>(EPOLLERR);
    events[i].events |= EPOLLIN | EPOLLOUT | EPOLLRDHUP;
  }
  return count;
}

void tlsproxy::loop::use_epoll_report() {}
