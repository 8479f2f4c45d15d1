// PidFile: the file that tells a command where the master is.
//
// Written whole or not at all (a new file takes the name), and locked by the master for as long as it
// lives: so a file left behind by a crash is told from a live one even when its number belongs to
// another process by now, and a second master with the same file is refused.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "os/fd.h"

namespace tlsproxy::server {

class PidFile {
 public:
  // Writes this process's id to `path`. An error when a living master holds the file.
  static base::Result<PidFile> create(const std::string& path);

  // The process that holds the file at `path`; an error when there is no such file, or when it is stale.
  static base::Result<pid_t> read(const std::string& path);

  PidFile(PidFile&& other) noexcept;
  PidFile& operator=(PidFile&& other) noexcept;
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  // Removes the file, if it is still the one that was written.
  ~PidFile();

  [[nodiscard]] const std::string& path() const { return path_; }

  // In a forked child: lets go of the file without removing it.
  void forget();

 private:
  PidFile(std::string path, os::Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  void remove();

  std::string path_;  // empty: nothing to remove
  os::Fd lock_;
};

}  // namespace tlsproxy::server
