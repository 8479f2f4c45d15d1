#include "server/pid_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/catch.h"

using namespace tlsproxy;
using tlsproxy::server::PidFile;

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tlsproxy-pid-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file() const { return path_ + "/tlsproxy.pid"; }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("the pid file names its process while it lives, and goes with it", "[pid_file]") {
  const Folder folder;
  {
    const auto file = PidFile::create(folder.file());
    REQUIRE(file);
    const auto pid = PidFile::read(folder.file());
    REQUIRE(pid);
    CHECK(*pid == ::getpid());
    CHECK(folder.entries() == 1);
  }
  CHECK(folder.entries() == 0);
}

TEST_CASE("a pid file left by a crash is stale even though its number is that of a living process",
          "[pid_file]") {
  const Folder folder;
  std::ofstream(folder.file()) << ::getpid() << "\n";
  const auto pid = PidFile::read(folder.file());
  REQUIRE_FALSE(pid);
  CHECK(pid.error().message.find("is stale") != std::string::npos);
  CHECK(PidFile::create(folder.file()));
}

TEST_CASE("a second master with the same pid file is refused and changes nothing", "[pid_file]") {
  const Folder folder;
  const auto first = PidFile::create(folder.file());
  REQUIRE(first);
  const auto second = PidFile::create(folder.file());
  REQUIRE_FALSE(second);
  CHECK(second.error().message.find("belongs to a running tlsproxy (pid " + std::to_string(::getpid()) +
                                    ")") != std::string::npos);
  CHECK(PidFile::read(folder.file()));
  CHECK(folder.entries() == 1);
}

TEST_CASE("a pid file that another one has replaced is left alone", "[pid_file]") {
  const Folder folder;
  {
    const auto file = PidFile::create(folder.file());
    REQUIRE(file);
    std::ofstream(folder.file() + ".other") << "1\n";
    std::filesystem::rename(folder.file() + ".other", folder.file());
  }
  CHECK(std::filesystem::exists(folder.file()));
}

TEST_CASE("a child that forgets the pid file leaves it to its parent", "[pid_file]") {
  const Folder folder;
  {
    auto file = PidFile::create(folder.file());
    REQUIRE(file);
    file->forget();
  }
  CHECK(std::filesystem::exists(folder.file()));
}

TEST_CASE("a pid file without a number, or none at all, is told apart", "[pid_file]") {
  const Folder folder;
  const auto none = PidFile::read(folder.file());
  REQUIRE_FALSE(none);
  CHECK(none.error().message.find("No such file") != std::string::npos);
  for (const char* text : {"", "abc\n", "-5\n", "0\n", "12x\n", "99999999999999999999\n"}) {
    std::ofstream(folder.file(), std::ios::trunc) << text;
    const auto pid = PidFile::read(folder.file());
    REQUIRE_FALSE(pid);
    CHECK(pid.error().message.find("holds no process id") != std::string::npos);
  }
}
