#include "config/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "os/fd.h"

namespace tlsproxy::config {
namespace {

// Certificates, keys and lists are small.
constexpr std::size_t kLargestFile = 64U * 1024 * 1024;

// Keeps what was made apart from what was read: no path of a configuration has a control byte.
std::string generated_name(const std::string& name) {
  return "\x01" + name;
}

base::Result<std::string> slurp(const std::string& shown, const std::string& path) {
  // Nonblocking, because opening a pipe that nobody writes would wait for ever.
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return base::system_failure("cannot read '" + shown + "'", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return base::system_failure("cannot read '" + shown + "'", errno);
  if (S_ISDIR(status.st_mode)) return base::failure("cannot read '" + shown + "': it is a directory");
  if (!S_ISREG(status.st_mode)) return base::failure("cannot read '" + shown + "': it is not a regular file");
  std::string content;
  char chunk[16384];
  for (;;) {
    const ssize_t got = ::read(file.get(), chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::system_failure("cannot read '" + shown + "'", errno);
    if (got == 0) return content;
    content.append(chunk, static_cast<std::size_t>(got));
    if (content.size() > kLargestFile) return base::failure("'" + shown + "' is larger than 64 MiB");
  }
}

}  // namespace

void wipe(FileMap& contents) {
  for (auto& [name, content] : contents) ::explicit_bzero(content.data(), content.size());
}

base::Result<std::string> DiskFiles::read(const std::string& path) {
  if (const auto known = contents_.find(path); known != contents_.end()) return known->second;
  auto content = slurp(path, (std::filesystem::path(directory_) / path).string());
  if (content) contents_.emplace(path, *content);
  return content;
}

base::Result<std::string> DiskFiles::generated(const std::string& name,
                                               base::Result<std::string> (*make)(const std::string&)) {
  const std::string key = generated_name(name);
  if (const auto known = contents_.find(key); known != contents_.end()) return known->second;
  auto content = make(name);
  if (content) contents_.emplace(key, *content);
  return content;
}

base::Result<std::string> RecordedFiles::read(const std::string& path) {
  if (const auto known = contents_.find(path); known != contents_.end()) return known->second;
  return base::failure("'" + path + "' is not in the bundle");
}

base::Result<std::string> RecordedFiles::generated(const std::string& name,
                                                   base::Result<std::string> (*)(const std::string&)) {
  if (const auto known = contents_.find(generated_name(name)); known != contents_.end()) return known->second;
  return base::failure("'" + name + "' is not in the bundle");
}

}  // namespace tlsproxy::config
