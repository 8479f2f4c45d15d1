// FileSource: where the files a configuration names are read from.
//
// The master reads them from disk through a source that records each, and packs the record into the
// bundle; a worker reads the same names from that bundle. So what was checked is what is used, and a
// worker needs no access to any file.
#pragma once

#include <map>
#include <string>

#include "base/result.h"

namespace tlsproxy::config {

class FileSource {
 public:
  FileSource() = default;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  virtual ~FileSource() = default;

  // The whole content of `path` as the configuration writes it; an error names the path and cause.
  virtual base::Result<std::string> read(const std::string& path) = 0;

  // The content that `make` returns, made once per generation under `name` and the same in every
  // process: for what has no file, such as a self-signed certificate.
  virtual base::Result<std::string> generated(const std::string& name,
                                              base::Result<std::string> (*make)(const std::string& name)) = 0;
};

using FileMap = std::map<std::string, std::string>;

// Overwrites every content: there are private keys and passphrases among them.
void wipe(FileMap& contents);

// Reads from disk (relative paths under `directory`) and remembers every content it handed out, so
// that one name has one content for the whole of a check.
class DiskFiles final : public FileSource {
 public:
  explicit DiskFiles(std::string directory) : directory_(std::move(directory)) {}
  ~DiskFiles() override { wipe(contents_); }
  base::Result<std::string> read(const std::string& path) override;
  base::Result<std::string> generated(const std::string& name,
                                      base::Result<std::string> (*make)(const std::string& name)) override;
  [[nodiscard]] const FileMap& contents() const { return contents_; }

 private:
  std::string directory_;
  FileMap contents_;
};

// Serves what DiskFiles recorded.
class RecordedFiles final : public FileSource {
 public:
  explicit RecordedFiles(FileMap contents) : contents_(std::move(contents)) {}
  ~RecordedFiles() override { wipe(contents_); }
  base::Result<std::string> read(const std::string& path) override;
  base::Result<std::string> generated(const std::string& name,
                                      base::Result<std::string> (*make)(const std::string& name)) override;

 private:
  FileMap contents_;
};

}  // namespace tlsproxy::config
