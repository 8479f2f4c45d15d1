// What the master and a worker say to each other, as plain structs, and their form on the wire.
//
//   master                                  worker
//     BeginGeneration, ListenSocket ... -->   stages
//     Prepare                           -->   builds, resolves names, then
//                                       <--   Prepared, or Refused
//     Commit (when all are prepared)    -->   switches over, then
//                                       <--   Applied
//     Abandon (when one refused)        -->   forgets what it staged
//
// Both ends run the same program, so there are no versions. Descriptors travel with the message that
// names them (SCM_RIGHTS). decode() trusts nothing: a worker may have been taken over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "os/fd.h"

namespace tlsproxy::server {

// A descriptor with several holders: a listening socket is in the set that is live, in the set that is
// being prepared, and in messages that wait to be sent. The last holder closes it.
using SharedFd = std::shared_ptr<const os::Fd>;

inline SharedFd share(os::Fd fd) {
  return std::make_shared<const os::Fd>(std::move(fd));
}

// --- from the master -----------------------------------------------------------------------------

struct BeginGeneration {
  std::uint64_t id = 0;
  SharedFd bundle;
  SharedFd error_log;
  SharedFd access_log;  // null: none
};

// The generation that was begun listens on this socket. Without a descriptor: the worker has the socket
// of this id, and keeps it.
struct ListenSocket {
  std::uint64_t id = 0;
  std::uint64_t listener = 0;  // index into the configuration's listeners
  std::uint64_t bind = 0;      // index into that listener's binds
  SharedFd fd;
};

struct Prepare {
  std::uint64_t id = 0;
};

struct Commit {
  std::uint64_t id = 0;
};

struct Abandon {
  std::uint64_t id = 0;
};

// The log files were opened again: write to these from now on.
struct LogTargets {
  SharedFd error_log;
  SharedFd access_log;  // null: none
};

// Accept what is queued and nothing more; exit when the last session has ended. Sessions that are left
// after `limit` are ended; without one they may last.
struct Quit {
  std::optional<std::chrono::milliseconds> limit;
};

// End every session now and exit.
struct Stop {};

struct Ping {};

// --- from a worker -------------------------------------------------------------------------------

struct Prepared {
  std::uint64_t id = 0;
};

struct Applied {
  std::uint64_t id = 0;
};

struct Refused {
  std::uint64_t id = 0;
  std::string text;  // cut to kLongestText when sent
};

struct Pong {};

using Message = std::variant<BeginGeneration, ListenSocket, Prepare, Commit, Abandon, LogTargets, Quit, Stop,
                             Ping, Prepared, Applied, Refused, Pong>;

constexpr std::size_t kLongestText = 2048;
constexpr std::size_t kLongestMessage = 4096;
constexpr std::size_t kMostDescriptors = 4;  // that one message may carry

struct Packet {
  std::string bytes;
  std::vector<SharedFd> fds;
};

Packet encode(Message message);

// The inverse. An error for anything that encode() does not make, descriptors too many or too few
// included; they are closed then.
base::Result<Message> decode(const Packet& packet);

}  // namespace tlsproxy::server
