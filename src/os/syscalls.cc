#include "os/syscalls.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace tlsproxy::os {

namespace {

ssize_t splice_here(int from, int to, std::size_t size, unsigned flags) {
  return ::splice(from, nullptr, to, nullptr, size, flags);
}

ssize_t recv_and_left_here(int fd, void* data, std::size_t size, int* left) {
  iovec place{data, size};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(fd, &message, 0);
  if (got <= 0) return got;
  const cmsghdr* told = CMSG_FIRSTHDR(&message);
  if (told != nullptr && told->cmsg_level == SOL_TCP && told->cmsg_type == TCP_CM_INQ) {
    std::memcpy(left, CMSG_DATA(told), sizeof(*left));
  }
  return got;
}

}  // namespace

const Syscalls& kernel_syscalls() {
  static constexpr Syscalls kernel{::socket, ::connect,   ::accept4,  ::recv, recv_and_left_here,
                                   ::send,   splice_here, ::shutdown, ::close};
  return kernel;
}

Syscalls& syscalls() {
  static Syscalls table = kernel_syscalls();
  return table;
}

}  // namespace tlsproxy::os
