#include "server/bundle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/defer.h"
#include "server/bytes.h"

namespace tlsproxy::server {
namespace {

constexpr std::uint64_t kMagic = 0x31656c646e756274;  // "tbundle1"
constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

std::size_t encoded_size(std::string_view file_name, std::string_view text, const config::FileMap& files) {
  std::size_t size = 2 * ByteWriter::kNumber + ByteWriter::size_of(file_name) + ByteWriter::size_of(text);
  for (const auto& [name, content] : files) size += ByteWriter::size_of(name) + ByteWriter::size_of(content);
  return size;
}

void encode_bundle(std::string_view file_name, std::string_view text, const config::FileMap& files,
                   std::span<char> space) {
  ByteWriter writer(space);
  writer.number(kMagic);
  writer.text(file_name);
  writer.text(text);
  writer.number(files.size());
  for (const auto& [name, content] : files) {
    writer.text(name);
    writer.text(content);
  }
}

base::Result<Bundle> decode_bundle(std::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.number() != kMagic) return base::failure("this is no bundle of a configuration");
  Bundle bundle;
  bundle.file_name = reader.text();
  bundle.text = reader.text();
  const std::uint64_t count = reader.number();
  for (std::uint64_t i = 0; i < count && reader.ok(); ++i) {
    const std::string_view name = reader.text();
    const std::string_view content = reader.text();
    if (reader.ok() && !bundle.files.emplace(name, content).second) {
      return base::failure("the bundle holds '" + std::string(name) + "' twice");
    }
  }
  if (!reader.ok()) return base::failure("the bundle is cut short");
  if (!reader.at_end()) return base::failure("the bundle has bytes after its end");
  return bundle;
}

base::Result<os::Fd> seal_bundle(std::string_view file_name, std::string_view text,
                                 const config::FileMap& files) {
  const std::string what = "cannot make the bundle of the configuration";
  const std::size_t size = encoded_size(file_name, text, files);
  os::Fd fd(::memfd_create("tlsproxy-bundle", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return base::system_failure(what, errno);
  // Allocated, not only sized: writing to a hole when memory is out would be a SIGBUS, not an error.
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size)); error != 0) {
    return base::system_failure(what, error);
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return base::system_failure(what, errno);
  encode_bundle(file_name, text, files, {static_cast<char*>(memory), size});
  ::munmap(memory, size);  // F_SEAL_WRITE is refused while a writable mapping exists
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return base::system_failure(what, errno);
  return fd;
}

base::Result<Bundle> open_bundle(int fd) {
  const std::string what = "cannot read the bundle of the configuration";
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return base::system_failure(what, errno);
  if ((seals & kSeals) != kSeals) return base::failure(what + ": it is not sealed");
  struct stat status {};
  if (::fstat(fd, &status) != 0) return base::system_failure(what, errno);
  if (status.st_size == 0) return base::failure(what + ": it is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return base::system_failure(what, errno);
  const auto unmap = base::defer([memory, size] { ::munmap(memory, size); });
  return decode_bundle({static_cast<const char*>(memory), size});
}

}  // namespace tlsproxy::server
