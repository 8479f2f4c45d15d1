#include "os/syscalls.h"

#include <fcntl.h>
#include <unistd.h>

namespace tlsproxy::os {

namespace {

ssize_t splice_here(int from, int to, std::size_t size, unsigned flags) {
  return ::splice(from, nullptr, to, nullptr, size, flags);
}

}  // namespace

const Syscalls& kernel_syscalls() {
  static constexpr Syscalls kernel{::socket, ::connect,   ::accept4,  ::recv,
                                   ::send,   splice_here, ::shutdown, ::close};
  return kernel;
}

Syscalls& syscalls() {
  static Syscalls table = kernel_syscalls();
  return table;
}

}  // namespace tlsproxy::os
