#include "server/command_line.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "config/yaml_loader.h"
#include "log/log.h"
#include "loop/version.h"
#include "route/version.h"
#include "server/candidate.h"
#include "server/master.h"
#include "server/overrides.h"
#include "server/pid_file.h"
#include "tls/memory.h"
#include "tls/version.h"

namespace tlsproxy::server {
namespace {

constexpr int kDone = 0;
constexpr int kError = 1;
constexpr int kUsage = 2;

struct Options {
  std::string file = TLSPROXY_SYSCONFDIR "/tlsproxy.yaml";
  std::string prefix;
  bool test = false;
  bool dump = false;
  bool quiet = false;
  std::string signal;
  bool version = false;
  bool versions = false;
};

const std::map<std::string, int> kSignals{
    {"reload", SIGHUP}, {"quit", SIGQUIT}, {"stop", SIGTERM}, {"reopen", SIGUSR1}};

void show(const config::Diagnostics& diagnostics) {
  for (const std::string& line : diagnostics.lines()) std::fprintf(stderr, "%s\n", line.c_str());
}

int complain(const std::string& text) {
  std::fprintf(stderr, "tlsproxy: %s\n", text.c_str());
  return kError;
}

int print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return kDone;
  return complain(std::string("cannot write to stdout: ") + std::strerror(errno));
}

int show_versions(bool of_libraries) {
  std::string text = "tlsproxy " TLSPROXY_VERSION "\n";
  if (of_libraries) {
    text += tls::library_version() + "\n" + loop::library_version() + "\n" + route::library_version() + "\n";
    text += "spdlog " + std::to_string(SPDLOG_VER_MAJOR) + "." + std::to_string(SPDLOG_VER_MINOR) + "." +
            std::to_string(SPDLOG_VER_PATCH) + "\n";
    text += "configuration " TLSPROXY_SYSCONFDIR "/tlsproxy.yaml\n";
  }
  return print(text);
}

int test(const ConfigPlace& place, const Options& options) {
  config::Diagnostics diagnostics(place.file);
  const auto candidate = check_configuration(place, 1, diagnostics);
  show(diagnostics);
  if (!candidate) return kError;
  if (!options.quiet) std::fprintf(stderr, "%s: configuration is valid\n", place.file.c_str());
  return options.dump ? print(config::to_yaml(candidate->config)) : kDone;
}

// Reads as much of the configuration as it takes to find the master: not the certificates, since what is
// wrong with those is the master's to report.
int send_signal(const ConfigPlace& place, const std::string& name) {
  config::Diagnostics diagnostics(place.file);
  const auto candidate = parse_configuration(place, diagnostics);
  if (!candidate) {
    show(diagnostics);
    return kError;
  }
  const std::string& file = candidate->config.pid_file.value;
  if (file.empty()) {
    return complain("cannot send '" + name + "': " + place.file + " has no pid_file to find the master by");
  }
  const auto pid = PidFile::read(place.resolve(file));
  if (!pid) return complain("cannot send '" + name + "': " + pid.error().message);
  if (::kill(*pid, kSignals.at(name)) != 0) {
    return complain("cannot send '" + name + "' to process " + std::to_string(*pid) + ": " +
                    std::strerror(errno));
  }
  return kDone;
}

void describe(CLI::App& app, Options& options) {
  app.set_help_flag("-h,--help", "show this help and exit");
  app.add_option("-c", options.file, "the configuration file")->type_name("FILE")->capture_default_str();
  app.add_option("-p", options.prefix, "where relative paths in it begin; else at its own folder")
      ->type_name("PREFIX");
  auto* test = app.add_flag("-t", options.test, "check the configuration and exit");
  auto* dump = app.add_flag("-T", options.dump, "check it, print it with every default, and exit");
  app.add_flag("-q", options.quiet, "say nothing when the check finds no error");
  app.add_option("-s", options.signal, "tell the running master: reload, quit, stop or reopen (log files)")
      ->type_name("WHAT")
      ->check(CLI::IsMember(kSignals))
      ->excludes(test)
      ->excludes(dump);
  app.add_flag("-v", options.version, "show the version and exit");
  app.add_flag("-V", options.versions, "show the versions of this program and its libraries, and exit");
}

}  // namespace

int run(int argc, char** argv) {
  tls::keep_record_memory();  // before anything of OpenSSL's
  log::init();
  Options options;
  CLI::App app("TLS/TCP stream proxy. Runs in the foreground until told to end.", "tlsproxy");
  describe(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print(app.help());
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "tlsproxy: %s (-h shows how it is used)\n", error.what());
    return kUsage;
  }
  if (options.version || options.versions) return show_versions(options.versions);
  const ConfigPlace place = ConfigPlace::of(options.file, options.prefix);
  if (!options.signal.empty()) return send_signal(place, options.signal);
  if (options.test || options.dump) return test(place, options);
  if (const auto overrides = Overrides::from_environment(); !overrides) {
    std::fprintf(stderr, "tlsproxy: %s\n", overrides.error().message.c_str());
    return kUsage;
  }
  return Master(place).run();
}

}  // namespace tlsproxy::server
