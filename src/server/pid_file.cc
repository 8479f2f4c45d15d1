#include "server/pid_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <utility>

namespace tlsproxy::server {
namespace {

std::optional<pid_t> number_in(int fd) {
  char text[32];
  const ssize_t got = ::pread(fd, text, sizeof(text), 0);
  if (got <= 0) return std::nullopt;
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text, text + got, pid);
  const bool whole = end == text + got || *end == '\n';
  if (error != std::errc() || !whole || pid <= 0) return std::nullopt;
  return pid;
}

bool held_by_another(int fd) {
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  ::flock(fd, LOCK_UN);
  return false;
}

}  // namespace

base::Result<PidFile> PidFile::create(const std::string& path) {
  const std::string what = "cannot write the pid file '" + path + "'";
  if (const os::Fd present(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); present) {
    if (held_by_another(present.get())) {
      const auto pid = number_in(present.get());
      return base::failure(what + ": it belongs to a running tlsproxy" +
                           (pid ? " (pid " + std::to_string(*pid) + ")" : ""));
    }
  }
  const std::string draft = path + ".new";
  ::unlink(draft.c_str());
  os::Fd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) return base::system_failure(what, errno);
  const std::string text = std::to_string(::getpid()) + "\n";
  const ssize_t put = ::write(fd.get(), text.data(), text.size());
  const bool written = put == static_cast<ssize_t>(text.size());
  const int error = put < 0 ? errno : ENOSPC;
  if (!written || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::rename(draft.c_str(), path.c_str()) != 0) {
    const int cause = written ? errno : error;
    ::unlink(draft.c_str());
    return base::system_failure(what, cause);
  }
  return PidFile(path, std::move(fd));
}

base::Result<pid_t> PidFile::read(const std::string& path) {
  const os::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return base::system_failure("cannot read the pid file '" + path + "'", errno);
  const auto pid = number_in(fd.get());
  if (!pid) return base::failure("the pid file '" + path + "' holds no process id");
  if (!held_by_another(fd.get())) {
    return base::failure("the pid file '" + path + "' is stale: no tlsproxy runs as process " +
                         std::to_string(*pid));
  }
  return *pid;
}

PidFile::PidFile(PidFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

PidFile& PidFile::operator=(PidFile&& other) noexcept {
  if (this != &other) {
    remove();
    path_ = std::exchange(other.path_, {});
    lock_ = std::move(other.lock_);
  }
  return *this;
}

PidFile::~PidFile() {
  remove();
}

void PidFile::forget() {
  path_.clear();
  lock_.reset();
}

void PidFile::remove() {
  if (path_.empty()) return;
  struct stat ours {};
  struct stat there {};
  const bool same = ::fstat(lock_.get(), &ours) == 0 && ::stat(path_.c_str(), &there) == 0 &&
                    ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
  if (same) ::unlink(path_.c_str());
  path_.clear();
}

}  // namespace tlsproxy::server
