#include "config/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "config/loading.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::config;

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tlsproxy-files-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string path() const { return path_; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(std::filesystem::path(path_) / name, std::ios::binary) << content;
  }

 private:
  std::string path_;
};

int times_made = 0;

base::Result<std::string> make_numbered(const std::string& name) {
  return name + " number " + std::to_string(++times_made);
}

base::Result<std::string> make_nothing(const std::string&) {
  return base::failure("no luck");
}

}  // namespace

TEST_CASE("a relative file is read from its folder, an absolute one from where it is", "[files]") {
  Folder folder;
  const std::string content("one\0two\n", 8);
  folder.write("a.pem", content);
  DiskFiles files(folder.path());
  CHECK(files.read("a.pem").value() == content);
  CHECK(DiskFiles("/").read(folder.path() + "/a.pem").value() == content);
}

TEST_CASE("one name has one content for the whole of a check", "[files]") {
  Folder folder;
  folder.write("a.pem", "before");
  DiskFiles files(folder.path());
  REQUIRE(files.read("a.pem").value() == "before");
  folder.write("a.pem", "after");
  CHECK(files.read("a.pem").value() == "before");
  CHECK(DiskFiles(folder.path()).read("a.pem").value() == "after");
}

TEST_CASE("what cannot be read is named with the reason", "[files]") {
  Folder folder;
  DiskFiles files(folder.path());
  const auto missing = files.read("none.pem");
  REQUIRE_FALSE(missing);
  CHECK(contains(missing.error().message, "'none.pem'"));
  CHECK(contains(missing.error().message, "No such file"));
  const auto directory = files.read(".");
  REQUIRE_FALSE(directory);
  CHECK(contains(directory.error().message, "directory"));
  CHECK(files.contents().empty());
}

TEST_CASE("a pipe that nobody writes does not hold up the reading", "[files]") {
  Folder folder;
  REQUIRE(::mkfifo((folder.path() + "/pipe").c_str(), 0600) == 0);
  const auto pipe = DiskFiles(folder.path()).read("pipe");
  REQUIRE_FALSE(pipe);
  CHECK(contains(pipe.error().message, "not a regular file"));
  CHECK_FALSE(DiskFiles("/").read("/dev/zero"));
}

TEST_CASE("a file larger than any certificate is refused", "[files]") {
  Folder folder;
  folder.write("huge.pem", "");
  std::filesystem::resize_file(folder.path() + "/huge.pem", 65U * 1024 * 1024);
  const auto huge = DiskFiles(folder.path()).read("huge.pem");
  REQUIRE_FALSE(huge);
  CHECK(contains(huge.error().message, "larger than 64 MiB"));
}

TEST_CASE("what has no file is made once, and no file can be taken for it", "[files]") {
  Folder folder;
  folder.write("web", "a file");
  DiskFiles files(folder.path());
  const std::string made = files.generated("web", make_numbered).value();
  CHECK(files.generated("web", make_numbered).value() == made);
  CHECK(files.read("web").value() == "a file");
  CHECK_FALSE(files.generated("other", make_nothing));

  RecordedFiles recorded(files.contents());
  CHECK(recorded.generated("web", make_numbered).value() == made);
  CHECK(recorded.read("web").value() == "a file");
}

TEST_CASE("a record serves what was read, and nothing else", "[files]") {
  Folder folder;
  folder.write("a.pem", "content");
  folder.write("b.pem", "not asked for");
  DiskFiles files(folder.path());
  REQUIRE(files.read("a.pem"));
  RecordedFiles recorded(files.contents());
  CHECK(recorded.read("a.pem").value() == "content");
  const auto other = recorded.read("b.pem");
  REQUIRE_FALSE(other);
  CHECK(contains(other.error().message, "b.pem"));
  CHECK_FALSE(recorded.generated("b.pem", make_numbered));
}
