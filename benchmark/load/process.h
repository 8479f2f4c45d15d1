// What a program asks of the system about processes: where it runs, what it used, what others used.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "clock.h"
#include "os/fd.h"

namespace tlsproxy::load {

// Keeps this process on one CPU.
base::Status pin_to_cpu(int cpu);

// Raises the limit of open files as far as allowed, and says how far that is.
std::size_t raise_file_limit();

// Time-outs are kept to the microsecond instead of to the 50 us that Linux adds by default.
void keep_time_exactly();

// A descriptor that is readable once SIGINT or SIGTERM came; the signals do nothing else any more.
base::Result<os::Fd> stop_signals();

// CPU time that this process used so far.
struct CpuTime {
  double user = 0;
  double system = 0;
};
CpuTime own_cpu_time();
CpuTime operator-(const CpuTime& a, const CpuTime& b);

// CPU time of all threads of `pid` that are alive; nothing when there is no such process.
std::optional<Nanoseconds> cpu_time_of(pid_t pid);

// How many ports ip_local_port_range has, and how many sockets are in TIME_WAIT; 0 when not known.
std::uint64_t ephemeral_ports();
std::uint64_t sockets_in_time_wait();

}  // namespace tlsproxy::load
