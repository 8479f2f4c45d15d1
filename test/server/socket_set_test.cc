#include "server/socket_set.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "config/yaml_loader.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::server;

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tlsproxy-sock-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A configuration of listeners "l0", "l1", ... with one bind each.
config::Config listening_on(const std::vector<std::string>& binds) {
  std::string yaml = "listeners:\n";
  for (std::size_t i = 0; i < binds.size(); ++i) {
    yaml += "  - {name: l" + std::to_string(i) + ", bind: '" + binds[i] + "', to: e}\n";
  }
  yaml += "backends: {e: {echo: true}}\n";
  config::Diagnostics diagnostics("test.yaml");
  config::Config config = config::load_yaml(yaml, diagnostics);
  for (const std::string& line : diagnostics.lines()) FAIL(line);
  return config;
}

struct Opened {
  std::optional<SocketSet> set;
  std::vector<std::string> errors;
};

Opened open_set(const std::vector<std::string>& binds, std::size_t workers, const SocketSet& present = {},
                const systemd::InheritedSockets& inherited = {}) {
  config::Diagnostics diagnostics("test.yaml");
  Opened opened;
  opened.set = SocketSet::open(listening_on(binds), workers, present, inherited, diagnostics);
  opened.errors = diagnostics.lines();
  return opened;
}

std::set<std::uint64_t> ids(const Place& place) {
  std::set<std::uint64_t> all;
  for (const ListeningSocket& socket : place.sockets) all.insert(socket.id);
  return all;
}

bool connects(const os::SocketAddress& address) {
  const os::Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(fd.get(), address.data(), address.size()) == 0;
}

}  // namespace

TEST_CASE("a place that stays is continued and only what it lacks is opened", "[socket_set]") {
  const std::vector<PresentPlace> have{{"a", 2}, {"b", 4}, {"c", 1}};
  const std::vector<WantedPlace> want{{"b", 2}, {"new", 2}, {"a", 3}};
  const auto steps = plan_places(have, want);
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].continues == 1U);
  CHECK(steps[0].to_open == 0);
  CHECK_FALSE(steps[1].continues);
  CHECK(steps[1].to_open == 2);
  CHECK(steps[2].continues == 0U);
  CHECK(steps[2].to_open == 1);
}

TEST_CASE("every socket is served by one worker, whatever the two numbers are", "[socket_set]") {
  const Place place;
  for (std::size_t workers = 1; workers <= 5; ++workers) {
    for (std::size_t socket = 0; socket < 9; ++socket) {
      int served = 0;
      for (std::size_t worker = 0; worker < workers; ++worker) {
        if (place.serves(worker, workers, socket)) ++served;
      }
      CHECK(served == 1);
    }
  }
}

TEST_CASE("all workers' sockets share the port that the kernel chose for the first", "[socket_set]") {
  const Opened opened = open_set({"127.0.0.1:0"}, 3);
  REQUIRE(opened.set);
  const Place& place = opened.set->places()[0];
  CHECK(place.sockets.size() == 3);
  CHECK(place.address.port() != 0);
  for (const ListeningSocket& socket : place.sockets) {
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    REQUIRE(::getsockname(socket.fd->get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    CHECK(ntohs(address.sin_port) == place.address.port());
    CHECK((::fcntl(socket.fd->get(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK((::fcntl(socket.fd->get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(connects(place.address));
}

TEST_CASE(
    "a reload keeps the sockets of an address, also when its listener moves or its number of workers falls",
    "[socket_set]") {
  const Opened first = open_set({"127.0.0.1:0", "[::1]:0"}, 2);
  REQUIRE(first.set);
  const std::string kept = "127.0.0.1:" + std::to_string(first.set->places()[0].address.port());

  SECTION("port 0 stays what it is while its listener has the same name") {
    const Opened second = open_set({"127.0.0.1:0", "[::1]:0"}, 2, *first.set);
    REQUIRE(second.set);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(ids(second.set->places()[i]) == ids(first.set->places()[i]));
      CHECK(second.set->places()[i].address == first.set->places()[i].address);
    }
  }
  SECTION("fewer workers: no socket is closed, for its accept queue may hold clients") {
    const Opened second = open_set({"127.0.0.1:0", "[::1]:0"}, 1, *first.set);
    REQUIRE(second.set);
    CHECK(ids(second.set->places()[0]) == ids(first.set->places()[0]));
  }
  SECTION("more workers: the old sockets and new ones beside them") {
    const Opened second = open_set({"127.0.0.1:0", "[::1]:0"}, 4, *first.set);
    REQUIRE(second.set);
    const auto now = ids(second.set->places()[0]);
    CHECK(now.size() == 4);
    for (const std::uint64_t id : ids(first.set->places()[0])) CHECK(now.contains(id));
    CHECK(second.set->places()[0].address == first.set->places()[0].address);
  }
  SECTION("an address that is named by its number continues in whichever listener names it") {
    const Opened second = open_set({"[::1]:0", kept}, 2, open_set({kept}, 2, *first.set).set.value());
    REQUIRE(second.set);
    CHECK(second.set->places()[1].address == first.set->places()[0].address);
  }
}

TEST_CASE("an address that another program listens on is refused with listener, address and place",
          "[socket_set]") {
  const os::Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  // The worst case: it too has SO_REUSEPORT, so that a bind beside it would succeed.
  REQUIRE(::setsockopt(other.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) == 0);
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(other.get(), 1) == 0);
  REQUIRE(::getsockname(other.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const std::string taken = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));

  const Opened opened = open_set({"127.0.0.1:0", taken}, 2);
  CHECK_FALSE(opened.set);
  REQUIRE(opened.errors.size() == 1);
  CHECK(opened.errors[0].starts_with("test.yaml:3:"));
  CHECK(opened.errors[0].find("listener 'l1': cannot listen on " + taken +
                              ": bind: Address already in use") != std::string::npos);
}

TEST_CASE("an address in TIME_WAIT from an earlier run is not in the way", "[socket_set]") {
  std::string address;
  {
    const Opened opened = open_set({"127.0.0.1:0"}, 1);
    REQUIRE(opened.set);
    const Place& place = opened.set->places()[0];
    address = place.address.to_string();
    os::Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(client.get(), place.address.data(), place.address.size()) == 0);
    // The accepted side ends first, and so is the one that waits.
    os::Fd(::accept4(place.sockets[0].fd->get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
    char byte = 0;
    CHECK(::read(client.get(), &byte, 1) == 0);
  }
  CHECK(open_set({address}, 2).set);
}

TEST_CASE("a unix socket is shared by all workers, open to all, and gone when its set is replaced",
          "[socket_set]") {
  const Folder folder;
  const std::string path = folder.file("a.sock");
  const Opened opened = open_set({"unix:" + path}, 4);
  REQUIRE(opened.set);
  const Place& place = opened.set->places()[0];
  CHECK(place.sockets.size() == 1);
  for (std::size_t worker = 0; worker < 4; ++worker) CHECK(place.serves(worker, 4, 0));
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0666);

  opened.set->remove_files_not_in(*opened.set);
  CHECK(std::filesystem::exists(path));
  opened.set->remove_files_not_in(SocketSet());
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a unix socket that a crash left behind is replaced; a living one and a plain file are not",
          "[socket_set]") {
  const Folder folder;
  const std::string path = folder.file("a.sock");
  const std::string bind = "unix:" + path;

  SECTION("left behind") {
    { REQUIRE(open_set({bind}, 1).set); }
    REQUIRE(std::filesystem::exists(path));
    const Opened again = open_set({bind}, 1);
    REQUIRE(again.set);
    CHECK(connects(again.set->places()[0].address));
  }
  SECTION("alive") {
    const Opened living = open_set({bind}, 1);
    REQUIRE(living.set);
    const Opened second = open_set({bind}, 1);
    CHECK_FALSE(second.set);
    REQUIRE(second.errors.size() == 1);
    CHECK(second.errors[0].find("another process listens there") != std::string::npos);
    CHECK(connects(living.set->places()[0].address));
  }
  SECTION("a plain file") {
    std::ofstream(path) << "precious";
    const Opened opened = open_set({bind}, 1);
    CHECK_FALSE(opened.set);
    REQUIRE(opened.errors.size() == 1);
    CHECK(opened.errors[0].find("the path exists and is no socket") != std::string::npos);
    CHECK(std::filesystem::file_size(path) == 8);
  }
}

TEST_CASE("a set that cannot be opened whole leaves no trace", "[socket_set]") {
  const Folder folder;
  const std::string present = folder.file("present.sock");
  const Opened first = open_set({"unix:" + present}, 1);
  REQUIRE(first.set);
  std::ofstream(folder.file("file")) << "x";
  const Opened second = open_set(
      {"unix:" + present, "unix:" + folder.file("new.sock"), "unix:" + folder.file("file")}, 1, *first.set);
  CHECK_FALSE(second.set);
  CHECK_FALSE(std::filesystem::exists(folder.file("new.sock")));
  CHECK(std::filesystem::exists(present));
  CHECK(connects(first.set->places()[0].address));
}

TEST_CASE("all addresses that cannot be listened on are named at once", "[socket_set]") {
  const Opened opened = open_set({"192.0.2.1:1", "192.0.2.1:2"}, 1);
  CHECK_FALSE(opened.set);
  CHECK(opened.errors.size() == 2);
}

TEST_CASE("sockets of systemd are used by name, and a wrong name is answered with the right ones",
          "[socket_set]") {
  const Opened outside = open_set({"127.0.0.1:0"}, 2);
  REQUIRE(outside.set);
  systemd::InheritedSockets inherited;
  for (const ListeningSocket& socket : outside.set->places()[0].sockets)
    inherited["web"].push_back(socket.fd);

  const Opened opened = open_set({"systemd:web"}, 4, {}, inherited);
  REQUIRE(opened.set);
  const Place& place = opened.set->places()[0];
  CHECK(place.sockets.size() == 2);
  CHECK(place.address == outside.set->places()[0].address);
  CHECK(place.serves(3, 4, 0));

  const Opened again = open_set({"systemd:web"}, 4, *opened.set, inherited);
  REQUIRE(again.set);
  CHECK(ids(again.set->places()[0]) == ids(place));

  const Opened wrong = open_set({"systemd:wbe"}, 4, {}, inherited);
  REQUIRE(wrong.errors.size() == 1);
  CHECK(wrong.errors[0].find("systemd passed no socket named 'wbe'; passed were: web") != std::string::npos);
}
