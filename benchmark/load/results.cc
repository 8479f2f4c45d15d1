#include "results.h"

#include <algorithm>
#include <numeric>

#include "process.h"

namespace tlsproxy::load {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(Nanoseconds time) {
  return static_cast<double>(time) / 1000;
}

Json to_json(const Histogram& histogram) {
  return {{"count", histogram.count()},
          {"min", microseconds(histogram.min())},
          {"mean", histogram.mean() / 1000},
          {"p50", microseconds(histogram.percentile(0.5))},
          {"p90", microseconds(histogram.percentile(0.9))},
          {"p99", microseconds(histogram.percentile(0.99))},
          {"p999", microseconds(histogram.percentile(0.999))},
          {"max", microseconds(histogram.max())}};
}

Json to_json(const CauseCounts& failures) {
  Json json;
  for (std::size_t i = 0; i < failures.size(); ++i) json[kCauseNames[i]] = failures[i];
  return json;
}

Json to_json(const std::optional<TlsFacts>& facts) {
  if (!facts) return nullptr;
  return {{"version", facts->version}, {"suite", facts->suite}, {"group", facts->group}};
}

std::uint64_t relayed_bytes(const Workload& workload, const Measurement& measurement) {
  if (workload.exchange == Exchange::up) return measurement.operations * kAcknowledgedBytes;
  return measurement.end.traffic.bytes_received - measurement.begin.traffic.bytes_received;
}

void add_watched(Json& json, const Options& options, const Measurement& measurement) {
  const Snapshot& begin = measurement.begin;
  const Snapshot& end = measurement.end;
  Json each = Json::array();
  Json sum = 0.0;
  for (std::size_t i = 0; i < options.watch.size(); ++i) {
    Json seconds;
    if (i < end.watched.size() && begin.watched[i] && end.watched[i]) {
      seconds = to_seconds(*end.watched[i] - *begin.watched[i]);
    }
    sum = sum.is_null() || seconds.is_null() ? Json() : Json(sum.get<double>() + seconds.get<double>());
    each.push_back({{"pid", options.watch[i]}, {"cpu_seconds", seconds}});
  }
  json["watched"] = each;
  json["watched_cpu_seconds"] = sum;
}

}  // namespace

nlohmann::ordered_json to_json(const Options& options, const Generator& generator) {
  const Measurement& measurement = generator.measurement();
  const Snapshot& begin = measurement.begin;
  const Snapshot& end = measurement.end;
  const Traffic& whole_run = generator.traffic();
  const CauseCounts& failures = generator.failures();
  const double seconds = to_seconds(end.time - begin.time);
  const double waiting = to_seconds(end.waited - begin.waited);
  const CpuTime cpu = end.cpu - begin.cpu;
  const Workload workload = workload_of(options);
  const std::uint64_t bytes = relayed_bytes(workload, measurement);
  // Scheduled operations belong to the window as planned, not to that from one turn of the loop to another.
  const bool as_planned = workload.pace == Pace::scheduled && !generator.was_interrupted();
  const auto per_second = [](std::uint64_t count, double time) {
    return time > 0 ? static_cast<double>(count) / time : 0;
  };

  Json json{
      {"mode", options.mode_name},
      {"tls", options.tls ? to_json(generator.tls_facts()) : Json(false)},
      {"payload", options.payload},
      {"connections", options.connections},
      {"seed", options.seed},
      {"warmup", options.warmup},
      {"rate", options.rate},
      {"open", measurement.open},
      {"seconds", seconds},
      {"interrupted", generator.was_interrupted()},
      {"bytes", bytes},
      {"bytes_per_second", per_second(bytes, seconds)},
      {"bytes_sent", end.traffic.bytes_sent - begin.traffic.bytes_sent},
      {"bytes_received", end.traffic.bytes_received - begin.traffic.bytes_received},
      {"operations", measurement.operations},
      {"operations_per_second", per_second(measurement.operations, as_planned ? options.seconds : seconds)},
      {"handshakes",
       {{"full", end.traffic.full_handshakes - begin.traffic.full_handshakes},
        {"resumed", end.traffic.resumed_handshakes - begin.traffic.resumed_handshakes}}},
      {"failed", std::accumulate(failures.begin(), failures.end(), std::uint64_t{0})},
      {"failures", to_json(failures)},
      {"checked", whole_run.checked},
      {"resets_at_close", whole_run.resets_at_close},
      {"latency_us", to_json(measurement.latency)},
      {"start_delay_us", to_json(measurement.start_delay)},
      {"unfinished", measurement.unfinished},
      {"cpu", {{"user", cpu.user}, {"system", cpu.system}}},
      {"waiting_seconds", waiting},
      {"headroom", seconds > 0 ? std::clamp(waiting / seconds, 0.0, 1.0) : 0},
  };
  add_watched(json, options, measurement);
  json["ports"] = {{"opened", whole_run.connects},
                   {"range", ephemeral_ports() * options.sources},
                   {"time_wait", sockets_in_time_wait()}};
  json["abort_close"] = options.abort_close;
  return json;
}

}  // namespace tlsproxy::load
