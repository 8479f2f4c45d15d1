// SocketSet: the listening sockets of one generation, held by the master.
//
//   listener web    bind 127.0.0.1:443   Place   sockets 0 1 2 3      one per worker (SO_REUSEPORT)
//                   bind unix:/run/web   Place   socket  0            shared by all workers
//   listener redis  bind systemd:redis   Place   sockets as inherited, shared by all workers
//
// A place that the next generation names again (same address, same v6only) keeps its sockets and with
// them its accept queues. A set is a value: the next one is opened beside the one that is live, and
// either replaces it or is dropped without a trace.
//
// Socket j of a place with one per worker is served by worker j % workers. So when the workers become
// fewer no socket is left alone, and when they become more, more are opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/diagnostics.h"
#include "config/model.h"
#include "os/address.h"
#include "server/message.h"
#include "server/systemd.h"

namespace tlsproxy::server {

struct ListeningSocket {
  std::uint64_t id = 0;  // never used twice by one master
  SharedFd fd;
};

// One bind of one listener.
struct Place {
  std::size_t listener = 0;  // index into the configuration's listeners
  std::size_t bind = 0;      // index into that listener's binds
  std::string listener_name;
  std::string key;            // what makes two binds of two generations the same place
  os::SocketAddress address;  // where it really listens
  int backlog = 0;
  bool shared = false;  // every worker serves every socket
  std::vector<ListeningSocket> sockets;

  // Whether worker number `worker` of `workers` serves socket number `index`.
  [[nodiscard]] bool serves(std::size_t worker, std::size_t workers, std::size_t index) const {
    return shared || index % workers == worker;
  }
};

// What to do for each wanted place: which present one it continues, and how many sockets to add.
struct PlanStep {
  std::optional<std::size_t> continues;  // index into what is there
  std::size_t to_open = 0;
};

// Pure. `have` and `want` are keys without repetition; `sockets[i]` counts those of `have[i]`; `each` is
// how many a place needs at least: one per worker, or one for a shared place.
struct WantedPlace {
  std::string key;
  std::size_t each = 1;
};
struct PresentPlace {
  std::string key;
  std::size_t sockets = 0;
};
std::vector<PlanStep> plan_places(std::span<const PresentPlace> have, std::span<const WantedPlace> want);

class SocketSet {
 public:
  SocketSet() = default;

  // The set for `config` with `workers` workers, continuing the places of `present`. What cannot be
  // opened is reported with listener, address and cause; then there is no set, and `present` is as it was.
  static std::optional<SocketSet> open(const config::Config& config, std::size_t workers,
                                       const SocketSet& present, const systemd::InheritedSockets& inherited,
                                       config::Diagnostics& diagnostics);

  [[nodiscard]] const std::vector<Place>& places() const { return places_; }
  [[nodiscard]] bool has(const std::string& key) const;

  // This set is live from now on: backlogs that the configuration changed take effect.
  void adopt() const;

  // Removes the files of unix sockets that are in this set and not in `other`. Call before the set is
  // dropped; not done by the destructor, since forked children drop sets as well.
  void remove_files_not_in(const SocketSet& other) const;

 private:
  std::vector<Place> places_;
  std::uint64_t next_id_ = 1;
};

}  // namespace tlsproxy::server
