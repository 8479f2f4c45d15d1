#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "blocks.h"

namespace tlsproxy::load {
namespace {

constexpr int kUsage = 2;
constexpr std::size_t kLargestPayload = std::size_t{64} * 1024 * 1024;
constexpr std::size_t kMostConnections = 1'000'000;

constexpr std::size_t kSessionsInFlight = 256;  // rate: what a subject may have to keep up with

struct ModeTraits {
  Mode mode;
  std::size_t default_payload;
  std::size_t largest_payload;
  std::size_t default_connections = 1;
};

const std::map<std::string, ModeTraits> kModes{
    {"bulk", {Mode::bulk, kStreamBlock, kLargestPayload}},
    {"fetch", {Mode::fetch, kStreamBlock, kLargestPayload}},
    {"up", {Mode::up, kStreamBlock, kStreamBlock}},
    {"down", {Mode::down, kStreamBlock, kStreamBlock}},
    {"handshake", {Mode::handshake, 1, kLargestPayload}},
    {"resume", {Mode::resume, 1, kLargestPayload}},
    {"rate", {Mode::rate, 1, kLargestPayload, kSessionsInFlight}},
    {"idle", {Mode::idle, 64, kLargestPayload}},
    {"message", {Mode::message, 200, kLargestPayload}},
};

// What is wrong with this combination; empty when nothing is.
std::string objection(const Options& options, const ModeTraits& traits) {
  if (options.payload > traits.largest_payload) {
    return "--payload: at most " + std::to_string(traits.largest_payload) + " with this mode";
  }
  if (options.mode == Mode::fetch && options.payload < kMarkSize) {
    return "--payload: at least " + std::to_string(kMarkSize) + " with --mode fetch";
  }
  if (options.mode == Mode::rate && options.rate <= 0) return "--rate is needed with --mode rate";
  if (options.rate > 0 && options.mode != Mode::rate && options.mode != Mode::message) {
    return "--rate: only with --mode rate or message";
  }
  if (options.think > 0 && (options.mode != Mode::message || options.rate > 0)) {
    return "--think: only with --mode message, and without --rate";
  }
  if (options.resume && options.mode != Mode::rate) return "--resume: only with --mode rate";
  if ((options.hold_echo || options.tick) && options.mode != Mode::idle) {
    return "--hold-echo and --tick: only with --mode idle";
  }
  if (!options.tls && workload_of(options).resumes) return "there is nothing to resume without --tls";
  if (options.sources > 1 && options.address.family() != AF_INET)
    return "--sources: only with an IPv4 address";
  return {};
}

CommandLine refused(const std::string& text) {
  std::fprintf(stderr, "tlsproxy-load: %s\n", text.c_str());
  return {.runs = false, .exit_status = kUsage, .options = {}};
}

}  // namespace

Workload workload_of(const Options& options) {
  switch (options.mode) {
    case Mode::bulk:
      return {};
    case Mode::fetch:
      return {.exchange = Exchange::fetch};
    case Mode::up:
      return {.exchange = Exchange::up};
    case Mode::down:
      return {.exchange = Exchange::down};
    case Mode::handshake:
      return {.session_each = true};
    case Mode::resume:
      return {.session_each = true, .resumes = true};
    case Mode::rate:
      return {.pace = Pace::scheduled, .session_each = true, .resumes = options.resume};
    case Mode::idle:
      return {.pace = Pace::scheduled};
    case Mode::message:
      return {.pace = options.rate > 0 ? Pace::scheduled : Pace::closed};
  }
  return {};
}

CommandLine parse_command_line(int argc, char** argv) {
  Options options;
  std::string address;
  double think_ms = 0;
  std::string version = "1.3";

  CLI::App app("Puts load on a TLS or TCP proxy and prints what came of it as JSON.", "tlsproxy-load");
  app.option_defaults()->take_last();
  app.add_option("--connect", address, "ADDR:PORT or unix:PATH of the subject")->required();
  app.add_option("--mode", options.mode_name, "what to do")->required()->check(CLI::IsMember(kModes));
  app.add_flag("--tls", options.tls, "TLS, nothing verified");
  app.add_option("--tls-version", version, "the only version")->check(CLI::IsMember({"1.2", "1.3"}));
  app.add_option("--suite", options.tls_options.suite, "the only suite");
  app.add_option("--group", options.tls_options.group, "the only group");
  app.add_option("--sni", options.tls_options.server_name, "server name to send");
  app.add_option("--payload", options.payload, "bytes")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber);
  app.add_option("--connections", options.connections, "connections, or sessions in flight")
      ->check(CLI::Range(std::size_t{1}, kMostConnections));
  app.add_option("--seconds", options.seconds, "measured window")->check(CLI::Range(0.01, 1e6));
  app.add_option("--warmup", options.warmup, "seconds before it")->check(CLI::Range(0.0, 1e6));
  app.add_option("--rate", options.rate, "operations a second, at Poisson instants")
      ->check(CLI::Range(0.001, 1e7));
  app.add_option("--think", think_ms, "message: pause after each answer, in ms")->check(CLI::Range(0.0, 1e9));
  app.add_flag("--resume", options.resume, "rate: resume sessions");
  app.add_option("--seed", options.seed, "of the instants");
  app.add_flag("--hold-echo", options.hold_echo, "idle: one echo on each connection first");
  app.add_flag("--tick", options.tick, "idle: then a message a second on each connection");
  app.add_option("--cpu", options.cpu, "run on this CPU only")->check(CLI::NonNegativeNumber);
  app.add_option("--watch", options.watch, "report the CPU time of this process; repeatable")
      ->check(CLI::PositiveNumber)
      ->take_all();
  app.add_flag("--announce", options.announce, "print lines when the measured window begins and ends");
  app.add_option("--sources", options.sources, "spread over so many addresses from 127.0.0.1 on")
      ->check(CLI::Range(1U, 250U));
  app.add_flag("--abort-close", options.abort_close, "end sessions with RST");
  app.add_option("--timeout", options.timeout, "seconds without progress that are a failure")
      ->check(CLI::Range(0.1, 1e6));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {.runs = false, .exit_status = app.exit(error) == 0 ? 0 : kUsage, .options = {}};
  }

  const ModeTraits& traits = kModes.at(options.mode_name);
  options.mode = traits.mode;
  options.think = think_ms / 1000;
  options.tls_options.is_1_3 = version == "1.3";
  if (options.payload == 0) options.payload = traits.default_payload;
  if (options.connections == 0) options.connections = traits.default_connections;
  const auto parsed = os::SocketAddress::parse(address);
  if (!parsed) return refused("--connect: " + parsed.error().message);
  options.address = *parsed;
  const Workload workload = workload_of(options);
  options.tls_options.takes_tickets = workload.resumes;
  options.tls_options.reads_ahead = options.mode == Mode::bulk || options.mode == Mode::fetch ||
                                    options.mode == Mode::up || options.mode == Mode::down;
  if (const std::string text = objection(options, traits); !text.empty()) return refused(text);
  return {.runs = true, .exit_status = 0, .options = options};
}

}  // namespace tlsproxy::load
