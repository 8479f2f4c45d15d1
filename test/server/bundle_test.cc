#include "server/bundle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::server;

namespace {

const config::FileMap kFiles{
    {"web.pem", std::string("PEM\0with a NUL", 14)}, {"empty", ""}, {"web.key", "k"}};

std::string encoded(const config::FileMap& files = kFiles) {
  std::string bytes(encoded_size("a.yaml", "workers: 2\n", files), '?');
  encode_bundle("a.yaml", "workers: 2\n", files, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("a bundle gives back what was packed, byte for byte", "[bundle]") {
  const auto sealed = seal_bundle("a.yaml", "workers: 2\n", kFiles);
  REQUIRE(sealed);
  const auto bundle = open_bundle(sealed->get());
  REQUIRE(bundle);
  CHECK(bundle->file_name == "a.yaml");
  CHECK(bundle->text == "workers: 2\n");
  CHECK(bundle->files == kFiles);
}

TEST_CASE("a bundle can be opened by every worker that was handed the descriptor", "[bundle]") {
  const auto sealed = seal_bundle("a.yaml", "text", {});
  REQUIRE(sealed);
  CHECK(open_bundle(sealed->get()));
  CHECK(open_bundle(sealed->get()));
}

TEST_CASE("nobody can change a sealed bundle", "[bundle]") {
  const auto sealed = seal_bundle("a.yaml", "text", kFiles);
  REQUIRE(sealed);
  const int fd = sealed->get();
  CHECK(::pwrite(fd, "x", 1, 0) == -1);
  CHECK(errno == EPERM);
  CHECK(::ftruncate(fd, 0) == -1);
  CHECK(errno == EPERM);
  CHECK(::ftruncate(fd, 1 << 20) == -1);
  CHECK(errno == EPERM);
  CHECK(::mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  CHECK(errno == EPERM);
  CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a descriptor that is not sealed is no bundle, whatever it holds", "[bundle]") {
  const std::string bytes = encoded();
  const os::Fd open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::write(open.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const auto bundle = open_bundle(open.get());
  REQUIRE_FALSE(bundle);
  CHECK(bundle.error().message == "cannot read the bundle of the configuration: it is not sealed");
}

TEST_CASE("every truncation of a bundle is refused", "[bundle]") {
  const std::string bytes = encoded();
  REQUIRE(decode_bundle(bytes));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    INFO("length " << length);
    // A copy of that size, so that a read beyond it is one beyond its allocation.
    CHECK_FALSE(decode_bundle(std::string(bytes, 0, length)));
  }
}

TEST_CASE("a bundle with a byte too many is refused", "[bundle]") {
  CHECK_FALSE(decode_bundle(encoded() + "x"));
}

TEST_CASE("a bundle with any one byte changed is refused or holds other content", "[bundle]") {
  const std::string bytes = encoded();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      const auto bundle = decode_bundle(damaged);
      INFO("byte " << at);
      CHECK((!bundle || bundle->files != kFiles || bundle->text != "workers: 2\n" ||
             bundle->file_name != "a.yaml"));
    }
  }
}

TEST_CASE("a length near the end of the address space does not wrap around", "[bundle]") {
  std::string bytes = encoded({});
  // The first text's length follows the magic number.
  bytes.replace(8, 8, 8, '\xff');
  CHECK_FALSE(decode_bundle(bytes));
}

TEST_CASE("a bundle that names one file twice is refused", "[bundle]") {
  std::string bytes = encoded({{"a", "1"}, {"b", "2"}});
  const std::size_t second = bytes.rfind('b');
  bytes[second] = 'a';
  const auto bundle = decode_bundle(bytes);
  REQUIRE_FALSE(bundle);
  CHECK(bundle.error().message == "the bundle holds 'a' twice");
}
