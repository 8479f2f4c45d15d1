// Backend: the server behind the subject. It does as little as possible, so that it is never what is
// measured: one buffer for all clients, and one of its own only for a client that does not read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "blocks.h"
#include "os/address.h"
#include "os/fd.h"
#include "poller.h"
#include "reserved_memory.h"

namespace tlsproxy::load {

enum class Service {
  echo,    // sends back what it receives
  answer,  // answers each request with a block
  sink,    // receives a stream of blocks and acknowledges each MiB
  source,  // sends a stream of blocks
};

struct BackendOptions {
  os::SocketAddress listen;
  Service service = Service::echo;
  std::uint64_t stream_bytes = 0;         // source: length of each stream, 0 is endless
  std::size_t write_size = kStreamBlock;  // source: bytes a write
  std::size_t answer_size = kStreamBlock;
};

struct BackendCounts {
  std::uint64_t connections = 0;
  std::uint64_t open_most = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t checked = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t failed = 0;
};

class Backend {
 public:
  // Listens. Errors: the system's.
  static base::Result<std::unique_ptr<Backend>> make(const BackendOptions& options);

  // Where it listens, with the port that was chosen.
  [[nodiscard]] os::SocketAddress address() const;

  // Serves until `stop` is readable.
  base::Status run(int stop);

  [[nodiscard]] const BackendCounts& counts() const { return counts_; }

 private:
  struct Client {
    os::Fd fd;
    std::uint32_t interest = 0;
    std::size_t kept_from = 0;  // what could not be sent yet is in its buffer, from here to there
    std::size_t kept_to = 0;
    std::uint64_t received = 0;   // sink
    std::uint64_t remaining = 0;  // source, answer
    OutgoingBlocks outgoing{kStreamBlock, 0};
    IncomingBlocks incoming{kStreamBlock, 0};
  };

  // What became of a client's turn: it may go on at once, has to wait for an event, has come to its end.
  enum class Turn { go_on, wait_to_read, wait_to_write, end, fail };

  Backend(const BackendOptions& options, os::Fd listener, Poller poller, std::size_t most_clients,
          ReservedMemory kept);

  void accept_clients();
  void welcome(os::Fd fd);
  void watch_listener(bool watched);
  void serve(Client& client);
  Turn take_turn(Client& client);
  Turn echo(Client& client);
  Turn answer(Client& client);
  Turn sink(Client& client);
  Turn source(Client& client);
  Turn deliver(Client& client, std::span<const std::uint8_t> bytes);
  Turn deliver_kept(Client& client);
  Turn send_some(Client& client, std::span<const std::uint8_t> bytes, std::size_t& sent);
  Turn receive(Client& client, std::span<const std::uint8_t>& bytes);
  std::span<std::uint8_t> buffer_of(const Client& client) const;
  void close(Client& client, bool failed);

  BackendOptions options_;
  os::Fd listener_;
  bool listener_is_watched_ = false;
  Poller poller_;
  std::vector<Client> clients_;  // by descriptor
  ReservedMemory kept_;          // kStreamBlock bytes each
  std::vector<std::uint8_t> scratch_;
  std::uint64_t open_ = 0;
  BackendCounts counts_;
};

}  // namespace tlsproxy::load
