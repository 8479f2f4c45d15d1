#include "os/fd.h"

#include "os/syscalls.h"

namespace tlsproxy::os {

void Fd::reset(int fd) noexcept {
  // Not repeated on EINTR: Linux has released the descriptor by then (close(2)).
  if (fd_ >= 0) syscalls().close(fd_);
  fd_ = fd;
}

}  // namespace tlsproxy::os
