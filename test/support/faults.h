// Faults: replaces the system-call table for a scope, by a script or by a seeded random mode.
//
// A script is one queue of outcomes per call; when it is used up, the kernel answers. The random mode
// draws short reads and writes, EAGAIN and EINTR (and resets or refusals when asked for) from a seed that
// it prints when a test fails; TLSPROXY_FAULT_SEED repeats that run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>

#include "os/syscalls.h"

namespace tlsproxy::support {

// What one call does: fail with an errno, move at most so many bytes, or pass to the kernel.
struct Outcome {
  int error = 0;
  std::optional<std::size_t> at_most;
};

inline Outcome fails(int error) {
  return {error, std::nullopt};
}
inline Outcome moves(std::size_t bytes) {
  return {0, bytes};
}

struct Odds {  // per mille
  int short_io = 400;
  int again = 150;
  int interrupted = 100;
  int reset = 0;      // of recv and send
  int no_buffer = 0;  // ENOBUFS of send
};

class Faults {
 public:
  Faults();
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  std::deque<Outcome> recv, send, splice, socket, connect, accept4;

  // From now on, calls without a script draw their outcome. Returns the seed in use.
  std::uint64_t randomize(std::uint64_t seed, const Odds& odds);

  // Calls made since the start, of each kind.
  struct Counts {
    std::size_t recv = 0, send = 0, splice = 0, socket = 0, connect = 0, accept4 = 0, shutdown = 0, close = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  static Faults& current();
  static int on_socket(int, int, int);
  static int on_connect(int, const sockaddr*, socklen_t);
  static int on_accept4(int, sockaddr*, socklen_t*, int);
  static ssize_t on_recv(int, void*, std::size_t, int);
  static ssize_t on_recv_and_left(int, void*, std::size_t, int*);
  static ssize_t on_send(int, const void*, std::size_t, int);
  static ssize_t on_splice(int, int, std::size_t, unsigned);
  static int on_shutdown(int, int);
  static int on_close(int);
  Outcome next(std::deque<Outcome>& script, bool sends);
  bool draw(int per_mille);

  Counts counts_;
  std::mt19937_64 random_;
  std::optional<Odds> odds_;
};

}  // namespace tlsproxy::support
