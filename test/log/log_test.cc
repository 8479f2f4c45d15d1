#include "log/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/defer.h"
#include "support/catch.h"

using namespace tlsproxy;

namespace {

struct Pipe {
  os::Fd reader;
  os::Fd writer;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  return {os::Fd(ends[0]), os::Fd(ends[1])};
}

// What a pipe holds now.
std::string drain(const os::Fd& reader) {
  std::string all;
  std::array<char, 4096> part{};
  for (ssize_t got; (got = ::read(reader.get(), part.data(), part.size())) > 0;) {
    all.append(part.data(), static_cast<std::size_t>(got));
  }
  return all;
}

std::string content(const std::filesystem::path& path) {
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The logs as the other tests expect them: silent.
void silence() {
  log::set_error_target(os::Fd());
  log::set_access_target(os::Fd());
  log::set_process_name("master");
  log::set_level(spdlog::level::off);
}

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "tlsproxy-log-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  return name;
}

}  // namespace

TEST_CASE("an error line has its time with the zone's offset, level and process before the message",
          "[log]") {
  Pipe pipe = make_pipe();
  auto restore = base::defer(silence);
  log::set_error_target(std::move(pipe.writer));
  log::set_level(spdlog::level::info);
  log::set_process_name("worker 3");

  log::info("listening on {} (listener {})", "127.0.0.1:443", "web");

  std::string line = drain(pipe.reader);
  INFO(line);
  const std::size_t zone = line.find_first_of("+-", 20);
  REQUIRE(zone != std::string::npos);
  line[zone] = '+';
  std::replace_if(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(zone) + 6, is_digit, 'd');
  CHECK(line == "dddd-dd-ddTdd:dd:dd.ddd+dd:dd info [worker 3] listening on 127.0.0.1:443 (listener web)\n");
}

TEST_CASE("lines below the level are not written, and off writes none", "[log]") {
  Pipe pipe = make_pipe();
  auto restore = base::defer(silence);
  log::set_error_target(std::move(pipe.writer));

  log::set_level(spdlog::level::warn);
  log::debug("no");
  log::info("no");
  CHECK(drain(pipe.reader).empty());
  log::warn("yes");
  CHECK(drain(pipe.reader).find(" warning [master] yes\n") != std::string::npos);

  log::set_level(spdlog::level::off);
  log::error("no");
  CHECK(drain(pipe.reader).empty());
}

TEST_CASE("a message is never taken for a format", "[log]") {
  Pipe pipe = make_pipe();
  auto restore = base::defer(silence);
  log::set_error_target(std::move(pipe.writer));
  log::set_level(spdlog::level::info);
  log::info("{}", "%Y {} {0} %v");
  CHECK(drain(pipe.reader).find("] %Y {} {0} %v\n") != std::string::npos);
}

TEST_CASE("the access log is off until it has a target, and its line is written bare", "[log]") {
  CHECK_FALSE(log::access_enabled());
  log::access("into nothing");

  Pipe pipe = make_pipe();
  auto restore = base::defer(silence);
  log::set_access_target(std::move(pipe.writer));
  CHECK(log::access_enabled());
  log::access("sni=%v {} reason=finished");
  log::access("second");
  CHECK(drain(pipe.reader) == "sni=%v {} reason=finished\nsecond\n");

  log::set_access_target(os::Fd());
  CHECK_FALSE(log::access_enabled());
}

TEST_CASE("access lines do not depend on the level of the error log", "[log]") {
  Pipe pipe = make_pipe();
  auto restore = base::defer(silence);
  log::set_level(spdlog::level::off);
  log::set_access_target(std::move(pipe.writer));
  log::access("still here");
  CHECK(drain(pipe.reader) == "still here\n");
}

TEST_CASE("a log whose target was replaced goes on in the new file, and the old one stays complete",
          "[log]") {
  const auto folder = make_folder();
  auto restore = base::defer([&] {
    silence();
    std::filesystem::remove_all(folder);
  });
  const auto path = folder / "access.log";

  auto first = log::open_target(path.string());
  REQUIRE(first);
  log::set_access_target(std::move(*first));
  log::access("before");

  std::filesystem::rename(path, folder / "access.log.1");
  log::access("to the renamed file");
  auto second = log::open_target(path.string());
  REQUIRE(second);
  log::set_access_target(std::move(*second));
  log::access("after");

  CHECK(content(folder / "access.log.1") == "before\nto the renamed file\n");
  CHECK(content(path) == "after\n");
}

TEST_CASE("a log file is appended to, is not readable by others and is not inherited by programs started",
          "[log]") {
  const auto folder = make_folder();
  auto restore = base::defer([&] {
    silence();
    std::filesystem::remove_all(folder);
  });
  const auto path = folder / "access.log";
  for (const char* line : {"one", "two"}) {
    auto target = log::open_target(path.string());
    REQUIRE(target);
    CHECK((::fcntl(target->get(), F_GETFD) & FD_CLOEXEC) != 0);
    log::set_access_target(std::move(*target));
    log::access(line);
  }
  CHECK(content(path) == "one\ntwo\n");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0037) == 0);
}

TEST_CASE("a log file that cannot be opened is an error that names it", "[log]") {
  const auto target = log::open_target("/nonexistent/folder/error.log");
  REQUIRE_FALSE(target);
  CHECK(target.error().message == "/nonexistent/folder/error.log: No such file or directory");
}

TEST_CASE("stderr and stdout are duplicated, so that closing a log leaves the stream open", "[log]") {
  for (const auto& [name, fd] : {std::pair{"stderr", STDERR_FILENO}, std::pair{"stdout", STDOUT_FILENO}}) {
    auto target = log::open_target(name);
    REQUIRE(target);
    CHECK(target->get() > STDERR_FILENO);
    target->reset();
    CHECK(::fcntl(fd, F_GETFD) >= 0);
  }
}

TEST_CASE("lines that could not be written cost nothing but themselves and are counted in the log", "[log]") {
  Pipe errors = make_pipe();
  Pipe access = make_pipe();
  auto restore = base::defer(silence);
  log::set_error_target(std::move(errors.writer));
  log::set_level(spdlog::level::info);
  log::set_access_target(std::move(access.writer));

  const std::string line(4000, 'x');
  for (int i = 0; i < 100; ++i) log::access(line);  // more than a pipe takes: the rest is lost, at once
  CHECK(drain(errors.reader).empty());
  std::string written = drain(access.reader);
  const auto whole = written.size() / (line.size() + 1);
  CHECK(written.size() % (line.size() + 1) == 0);

  log::access("back");
  CHECK(drain(access.reader) == "back\n");
  const std::string told = drain(errors.reader);
  INFO(told);
  CHECK(told.find(std::to_string(100 - whole) +
                  " lines of the access log were lost: Resource temporarily unavailable\n") !=
        std::string::npos);
}
