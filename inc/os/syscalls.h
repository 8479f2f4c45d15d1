// The system calls of the data path, behind one replaceable table.
//
// An indirect call is nothing next to a system call, so the released program and the tests run the
// same code: a test swaps entries for a script ("recv: 3 bytes, then EAGAIN, then ECONNRESET") or a
// seeded random mode. Everything the relay does to a socket goes through here; set-up code that runs
// once calls the system directly.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

namespace tlsproxy::os {

struct Syscalls {
  int (*socket)(int domain, int type, int protocol);
  int (*connect)(int fd, const sockaddr* address, socklen_t length);
  int (*accept4)(int fd, sockaddr* address, socklen_t* length, int flags);
  ssize_t (*recv)(int fd, void* data, std::size_t size, int flags);
  // recvmsg on a socket with TCP_INQ set: recv that also tells how many bytes it has left in the kernel
  // (at least 1 when the end of stream is what is left); `left` stays as it is where the kernel does not
  // tell.
  ssize_t (*recv_and_left)(int fd, void* data, std::size_t size, int* left);
  ssize_t (*send)(int fd, const void* data, std::size_t size, int flags);
  ssize_t (*splice)(int from, int to, std::size_t size, unsigned flags);
  int (*shutdown)(int fd, int how);
  int (*close)(int fd);
};

// The table in use; the kernel's own calls unless a test replaced some. Not for concurrent change.
Syscalls& syscalls();

// The kernel's own calls, for a test to restore or to forward to.
const Syscalls& kernel_syscalls();

}  // namespace tlsproxy::os
