// The floors of the tree: a file includes its own floor and lower ones, never up, and each library stays
// behind the folder that wraps it. The table is the one of src/ARCHITECTURE.md.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch.h"

namespace {

namespace fs = std::filesystem;

const std::map<std::string, int> kFloors{
    {"base", 0}, {"os", 1},     {"loop", 2},   {"buffer", 2}, {"log", 2},       {"digest", 2},
    {"wire", 3}, {"config", 3}, {"shm", 3},    {"record", 4}, {"transport", 4}, {"route", 5},
    {"tls", 5},  {"relay", 6},  {"server", 7}, {"admin", 8},
};
constexpr int kTop = 9;  // src/main.cc

struct Library {
  const char* name;
  const char* header;                // how its includes begin
  std::vector<std::string> allowed;  // how the paths of its users begin, below inc/ and src/
};

const std::vector<Library> kLibraries{
    {"libevent", "event2/", {"loop/", "admin/"}},
    {"libevent", "event.h", {}},
    {"OpenSSL", "openssl/", {"tls/", "digest/"}},
    {"yaml-cpp", "yaml-cpp/", {"config/yaml_"}},
    {"spdlog", "spdlog/", {"log/"}},
};

int floor_of(const std::string& path) {
  if (path == "main.cc") return kTop;
  const auto found = kFloors.find(path.substr(0, path.find('/')));
  return found == kFloors.end() ? -1 : found->second;
}

struct Include {
  bool quoted = false;
  std::string header;
};

// What `line` includes, if it does.
std::optional<Include> include_of(const std::string& line) {
  constexpr char kBlanks[] = " \t";
  const std::size_t hash = line.find_first_not_of(kBlanks);
  if (hash == std::string::npos || line[hash] != '#') return std::nullopt;
  const std::size_t word = line.find_first_not_of(kBlanks, hash + 1);
  if (word == std::string::npos || line.compare(word, 7, "include") != 0) return std::nullopt;
  const std::size_t open = line.find_first_of("<\"", word + 7);
  if (open == std::string::npos) return std::nullopt;
  const bool quoted = line[open] == '"';
  const std::size_t close = line.find(quoted ? '"' : '>', open + 1);
  if (close == std::string::npos) return std::nullopt;
  return Include{quoted, line.substr(open + 1, close - open - 1)};
}

// What is wrong with the include lines of the file whose path below inc/ or src/ is `path`, each as
// "LINE: fault".
std::vector<std::string> faults(const std::string& path, const std::string& text) {
  std::vector<std::string> found;
  const int own_floor = floor_of(path);
  if (own_floor < 0) return {"1: the folder has no floor"};

  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto include = include_of(line);
    if (!include) continue;
    const std::string& header = include->header;
    const auto add = [&found, number](const std::string& fault) {
      found.push_back(std::to_string(number) + ": " + fault);
    };
    if (include->quoted) {
      const int floor = floor_of(header);
      if (floor < 0) add("\"" + header + "\" is in no folder with a floor");
      if (floor > own_floor) {
        add("\"" + header + "\" is on floor " + std::to_string(floor) + ", above this file's " +
            std::to_string(own_floor));
      }
    }
    for (const Library& library : kLibraries) {
      if (!header.starts_with(library.header)) continue;
      const bool allowed =
          std::any_of(library.allowed.begin(), library.allowed.end(),
                      [&path](const std::string& folder) { return path.starts_with(folder); });
      if (!allowed) add(std::string(library.name) + " (" + header + ") is included outside its folder");
    }
  }
  return found;
}

std::string content(const fs::path& path) {
  std::ostringstream all;
  all << std::ifstream(path).rdbuf();
  return all.str();
}

using Faults = std::vector<std::string>;

}  // namespace

TEST_CASE("no file includes a higher floor, or a library outside its folder", "[floors]") {
  std::size_t files = 0;
  for (const char* top : {"inc", "src"}) {
    const fs::path root = fs::path(TLSPROXY_SOURCE_DIR) / top;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const auto extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      ++files;
      const std::string path = fs::relative(entry.path(), root).generic_string();
      for (const std::string& fault : faults(path, content(entry.path()))) {
        FAIL_CHECK(top << "/" << path << ":" << fault);
      }
    }
  }
  CHECK(files > 20);  // it looked at the tree
}

TEST_CASE("the floors test sees an include that goes up", "[floors]") {
  CHECK(faults("wire/client_hello.cc", "#include <span>\n#include \"relay/session.h\"\n") ==
        Faults{"2: \"relay/session.h\" is on floor 6, above this file's 3"});
  CHECK(faults("relay/session.cc", "  #  include \"main.cc\"  // why\n") ==
        Faults{"1: \"main.cc\" is on floor 9, above this file's 6"});
  CHECK(faults("relay/session.cc", "#include \"wire/client_hello.h\"\n#include \"relay/leg.h\"\n").empty());
  CHECK(faults("record/access_log.cc", "#include \"transport/plain.h\"\n").empty());
  CHECK(faults("main.cc", "#include \"server/command_line.h\"\n").empty());
}

TEST_CASE("the floors test sees a folder without a floor", "[floors]") {
  CHECK(faults("util/helpers.h", "") == Faults{"1: the folder has no floor"});
  CHECK(faults("os/fd.cc", "#include \"fd.h\"\n") == Faults{"1: \"fd.h\" is in no folder with a floor"});
}

TEST_CASE("the floors test sees a library outside its folder", "[floors]") {
  CHECK(faults("relay/leg.cc", "\n#include <openssl/ssl.h>\n") ==
        Faults{"2: OpenSSL (openssl/ssl.h) is included outside its folder"});
  CHECK(faults("server/worker.h", "#include <event2/event.h>\n").size() == 1);
  CHECK(faults("config/model.cc", "#include <yaml-cpp/yaml.h>\n").size() == 1);
  CHECK(faults("config/yaml_loader.cc", "#include <yaml-cpp/yaml.h>\n").empty());
  CHECK(faults("server/master.cc", "#include <spdlog/spdlog.h>\n").size() == 1);
  CHECK(faults("log/log.cc", "#include <spdlog/spdlog.h>\n").empty());
  CHECK(faults("tls/context.cc", "#include <openssl/ssl.h>\n").empty());
  CHECK(faults("loop/timer.h", "#include <event2/event.h>\n").empty());
}
