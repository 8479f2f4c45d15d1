#include "os/syscalls.h"

#include <unistd.h>

namespace tlsproxy::os {

const Syscalls& kernel_syscalls() {
  static constexpr Syscalls kernel{::socket, ::connect, ::accept4, ::recv, ::send, ::shutdown, ::close};
  return kernel;
}

Syscalls& syscalls() {
  static Syscalls table = kernel_syscalls();
  return table;
}

}  // namespace tlsproxy::os
