// tlsproxy-load: options in, a run, JSON out. See INTERFACE.md.
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "generator.h"
#include "options.h"
#include "process.h"
#include "results.h"
#include "tls/memory.h"

namespace {

using namespace tlsproxy;

constexpr int kDone = 0;
constexpr int kError = 1;
constexpr std::size_t kOtherFiles = 32;  // standard ones, epoll, signals, /proc

int complain(const std::string& text) {
  std::fprintf(stderr, "tlsproxy-load: %s\n", text.c_str());
  return kError;
}

int run(int argc, char** argv) {
  const load::CommandLine command_line = load::parse_command_line(argc, argv);
  if (!command_line.runs) return command_line.exit_status;
  const load::Options& options = command_line.options;

  tls::keep_record_memory();      // or OpenSSL allocates for each record
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  load::keep_time_exactly();
  if (const std::size_t files = load::raise_file_limit(); files < options.connections + kOtherFiles) {
    return complain("only " + std::to_string(files) + " files may be open; raise it with ulimit -n");
  }
  if (options.cpu >= 0) {
    if (const auto pinned = load::pin_to_cpu(options.cpu); !pinned) return complain(pinned.error().message);
  }
  const auto stop = load::stop_signals();
  if (!stop) return complain(stop.error().message);
  const auto generator = load::Generator::make(options);
  if (!generator) return complain(generator.error().message);

  const auto ran = (*generator)->run(stop->get());
  std::puts(load::to_json(options, **generator).dump().c_str());
  if (!ran) return complain(ran.error().message);
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tlsproxy-load: %s\n", error.what());
    return kError;
  }
}
