// tlsproxy-backend: its command line and its JSON. See INTERFACE.md.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "backend.h"
#include "process.h"

namespace {

using namespace tlsproxy;
using Json = nlohmann::ordered_json;

constexpr int kDone = 0;
constexpr int kError = 1;
constexpr int kUsage = 2;

const std::map<std::string, load::Service> kServices{

    {"echo", load::Service::echo},
    {"answer", load::Service::answer},
    {"sink", load::Service::sink},
    {"source", load::Service::source}};

int complain(const std::string& text, int status) {
  std::fprintf(stderr, "tlsproxy-backend: %s\n", text.c_str());
  return status;
}

void print(const Json& json) {
  std::puts(json.dump().c_str());
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  std::string listen;
  std::string mode = "echo";
  int cpu = -1;
  load::BackendOptions options;

  CLI::App app("A TCP backend for benchmarks: echoes, discards or sends.", "tlsproxy-backend");
  app.option_defaults()->take_last();
  app.add_option("--listen", listen, "ADDR:PORT (port 0 takes a free one) or unix:PATH")->required();
  app.add_option("--mode", mode, "echo, answer, sink or source")->check(CLI::IsMember(kServices));
  app.add_option("--bytes", options.stream_bytes, "source: length of each stream, 0 is endless")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--payload", options.write_size, "source: bytes a write")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1}, load::kStreamBlock));
  app.add_option("--answer", options.answer_size, "answer: bytes of each answer")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(load::kMarkSize, std::size_t{64} * 1024 * 1024));
  app.add_option("--cpu", cpu, "run on this CPU only")->check(CLI::NonNegativeNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }

  const auto address = os::SocketAddress::parse(listen);
  if (!address) return complain(address.error().message, kUsage);
  options.listen = *address;
  options.service = kServices.at(mode);

  if (cpu >= 0) {
    if (const auto pinned = load::pin_to_cpu(cpu); !pinned) return complain(pinned.error().message, kError);
  }
  const auto stop = load::stop_signals();
  if (!stop) return complain(stop.error().message, kError);
  const auto backend = load::Backend::make(options);
  if (!backend) return complain(backend.error().message, kError);

  const os::SocketAddress bound = (*backend)->address();
  print({{"listening", bound.to_string()}, {"port", bound.port()}, {"mode", mode}, {"pid", ::getpid()}});
  if (const auto ran = (*backend)->run(stop->get()); !ran) return complain(ran.error().message, kError);

  const load::BackendCounts& counts = (*backend)->counts();
  const load::CpuTime time = load::own_cpu_time();
  print({{"mode", mode},
         {"connections", counts.connections},
         {"open_most", counts.open_most},
         {"bytes_in", counts.bytes_in},
         {"bytes_out", counts.bytes_out},
         {"checked", counts.checked},
         {"mismatches", counts.mismatches},
         {"failed", counts.failed},
         {"cpu", {{"user", time.user}, {"system", time.system}}}});
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tlsproxy-backend: %s\n", error.what());
    return kError;
  }
}
