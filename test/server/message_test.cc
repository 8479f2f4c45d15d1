#include "server/message.h"

#include <fcntl.h>

#include <random>
#include <string>

#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::server;

namespace {

SharedFd some_fd() {
  return share(os::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
}

std::vector<Message> one_of_each() {
  std::vector<Message> all;
  all.emplace_back(BeginGeneration{7, some_fd(), some_fd(), nullptr});
  all.emplace_back(BeginGeneration{7, some_fd(), some_fd(), some_fd()});
  all.emplace_back(ListenSocket{1, 2, 3, some_fd()});
  all.emplace_back(ListenSocket{1, 2, 3, nullptr});
  all.emplace_back(Prepare{4});
  all.emplace_back(Commit{5});
  all.emplace_back(Abandon{6});
  all.emplace_back(LogTargets{some_fd(), nullptr});
  all.emplace_back(Quit{std::chrono::milliseconds(1500)});
  all.emplace_back(Quit{});
  all.emplace_back(Stop{});
  all.emplace_back(Ping{});
  all.emplace_back(Prepared{8});
  all.emplace_back(Applied{9});
  all.emplace_back(Refused{10, "because"});
  all.emplace_back(Pong{});
  return all;
}

}  // namespace

TEST_CASE("every kind of message survives the wire", "[message]") {
  for (const Message& message : one_of_each()) {
    INFO("kind " << message.index());
    const auto back = decode(encode(message));
    REQUIRE(back);
    CHECK(back->index() == message.index());
  }
}

TEST_CASE("fields and descriptors arrive in their places", "[message]") {
  const SharedFd bundle = some_fd();
  const SharedFd error_log = some_fd();
  const SharedFd access_log = some_fd();
  const auto begin = decode(encode(BeginGeneration{7, bundle, error_log, access_log}));
  REQUIRE(begin);
  const auto& got = std::get<BeginGeneration>(*begin);
  CHECK(got.id == 7);
  CHECK(got.bundle == bundle);
  CHECK(got.error_log == error_log);
  CHECK(got.access_log == access_log);

  const auto listen = decode(encode(ListenSocket{1, 2, 3, nullptr}));
  REQUIRE(listen);
  CHECK(std::get<ListenSocket>(*listen).id == 1);
  CHECK(std::get<ListenSocket>(*listen).listener == 2);
  CHECK(std::get<ListenSocket>(*listen).bind == 3);
  CHECK(std::get<ListenSocket>(*listen).fd == nullptr);

  const auto quit = decode(encode(Quit{std::chrono::milliseconds(1500)}));
  REQUIRE(quit);
  CHECK(std::get<Quit>(*quit).limit == std::chrono::milliseconds(1500));

  const auto refused = decode(encode(Refused{10, "because"}));
  REQUIRE(refused);
  CHECK(std::get<Refused>(*refused).text == "because");
}

TEST_CASE("a long reason is cut so that it fits a message", "[message]") {
  const Packet packet = encode(Refused{1, std::string(100000, 'x')});
  CHECK(packet.bytes.size() <= kLongestMessage);
  const auto back = decode(packet);
  REQUIRE(back);
  CHECK(std::get<Refused>(*back).text == std::string(kLongestText, 'x'));
}

TEST_CASE("a message without one of its descriptors, or with one too many, is refused", "[message]") {
  for (const Message& message : one_of_each()) {
    INFO("kind " << message.index());
    Packet packet = encode(message);
    packet.fds.push_back(some_fd());
    CHECK_FALSE(decode(packet));
    packet.fds.pop_back();
    if (packet.fds.empty()) continue;
    packet.fds.pop_back();
    CHECK_FALSE(decode(packet));
  }
}

TEST_CASE("every truncation of a message is refused", "[message]") {
  for (const Message& message : one_of_each()) {
    const Packet whole = encode(message);
    for (std::size_t length = 0; length < whole.bytes.size(); ++length) {
      INFO("kind " << message.index() << " length " << length);
      CHECK_FALSE(decode(Packet{std::string(whole.bytes, 0, length), whole.fds}));
    }
  }
}

TEST_CASE("bytes that are no message are refused or understood, never believed beyond their end",
          "[message]") {
  std::mt19937_64 random(20261201);
  std::size_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 3);
    if (!decode(Packet{bytes, {}})) ++refused;
  }
  CHECK(refused > 19000);
}
