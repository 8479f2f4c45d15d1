// The entry point of the unit tests, for either Catch2.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <csignal>

#include "log/log.h"
#include "support/heap.h"
#include "tls/memory.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  tlsproxy::support::count_allocations();
  tlsproxy::tls::keep_record_memory();
  tlsproxy::log::init();
  tlsproxy::log::set_level(spdlog::level::off);
  return Catch::Session().run(argc, argv);
}
