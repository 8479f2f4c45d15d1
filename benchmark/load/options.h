// Options: the command line of the load generator. Workload: what its mode means.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/address.h"
#include "tls_client.h"

namespace tlsproxy::load {

enum class Mode { bulk, fetch, up, down, handshake, resume, rate, idle, message };

struct Options {
  os::SocketAddress address;
  Mode mode = Mode::bulk;
  std::string mode_name;
  bool tls = false;
  TlsOptions tls_options;
  std::size_t payload = 0;
  std::size_t connections = 0;
  double seconds = 10;
  double warmup = 1;
  double rate = 0;   // a second
  double think = 0;  // seconds
  bool resume = false;
  std::uint64_t seed = 1;
  bool hold_echo = false;
  bool tick = false;
  int cpu = -1;
  std::vector<pid_t> watch;
  bool announce = false;
  unsigned sources = 1;
  bool abort_close = false;
  double timeout = 10;
};

// What goes over a connection.
enum class Exchange {
  echo,   // a payload, and back
  fetch,  // a short request, and a payload back
  up,     // a stream of blocks, acknowledged
  down,   // a stream of blocks from the backend
};

// Whether it goes on by itself, instead of by one operation after another.
constexpr bool is_stream(Exchange exchange) {
  return exchange == Exchange::up || exchange == Exchange::down;
}

// When the next operation begins.
enum class Pace {
  closed,     // when the one before it has ended (and the think time has passed)
  scheduled,  // when the schedule says so
};

struct Workload {
  Exchange exchange = Exchange::echo;
  Pace pace = Pace::closed;
  bool session_each = false;  // a new connection for each operation, instead of one for all
  bool resumes = false;
};

Workload workload_of(const Options& options);

// What the command line asked for: a run, or only an answer (help, or a complaint) that was printed.
struct CommandLine {
  bool runs = false;
  int exit_status = 0;
  Options options;
};
CommandLine parse_command_line(int argc, char** argv);

}  // namespace tlsproxy::load
