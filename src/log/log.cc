#include "log/log.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

namespace tlsproxy::log {
namespace {

// Writes each line with one write(2) to the descriptor it owns. A line that cannot be written is counted
// and dropped, since a full disk must not stop the traffic; the next line that can be is followed by the
// count. One thread per process, so no lock.
class LineSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit LineSink(std::string name) : name_(std::move(name)) {}

  void set_target(os::Fd fd) { fd_ = std::move(fd); }
  [[nodiscard]] bool has_target() const { return static_cast<bool>(fd_); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (!fd_) return;
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (write_whole(line.data(), line.size())) {
      report_lost();
    } else {
      ++lost_;
    }
  }

  void flush_() override {}

 private:
  // A short write (a pipe, a disk filling up) is continued as long as it gets on.
  bool write_whole(const char* data, std::size_t size) {
    while (size > 0) {
      const ssize_t written = ::write(fd_.get(), data, size);
      if (written > 0) {
        data += written;
        size -= static_cast<std::size_t>(written);
      } else if (written == 0 || errno != EINTR) {
        cause_ = written == 0 ? EIO : errno;
        return false;
      }
    }
    return true;
  }

  void report_lost() {
    if (const std::size_t lost = std::exchange(lost_, 0); lost > 0) {
      warn("{} lines of the {} log were lost: {}", lost, name_, std::generic_category().message(cause_));
    }
  }

  std::string name_;
  os::Fd fd_;
  std::size_t lost_ = 0;
  int cause_ = 0;  // errno of the last line lost
};

std::shared_ptr<LineSink> error_sink;
std::shared_ptr<LineSink> access_sink;
std::shared_ptr<spdlog::logger> access_logger;

// The time of day with the zone's offset, so that lines of machines in several zones can be merged.
constexpr char kErrorPattern[] = "%Y-%m-%dT%H:%M:%S.%e%z %l";

base::Result<os::Fd> duplicate(int fd, const std::string& name) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (copy < 0) return base::system_failure(name, errno);
  return os::Fd(copy);
}

}  // namespace

void init() {
  error_sink = std::make_shared<LineSink>("error");
  access_sink = std::make_shared<LineSink>("access");
  // Without a stderr (closed by whoever started us) there is nowhere to say so either.
  if (auto target = open_target("stderr")) error_sink->set_target(std::move(*target));

  spdlog::set_default_logger(std::make_shared<spdlog::logger>("error", error_sink));
  set_process_name("master");
  set_level(spdlog::level::info);

  access_logger = std::make_shared<spdlog::logger>("access", access_sink);
  access_sink->set_pattern("%v");
}

base::Result<os::Fd> open_target(const std::string& path) {
  if (path == "stderr") return duplicate(STDERR_FILENO, path);
  if (path == "stdout") return duplicate(STDOUT_FILENO, path);
  // O_NONBLOCK is for a FIFO: without a reader it is an error, and a reader that stalls costs lines, not
  // traffic. Regular files do not know it.
  os::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640));
  if (!fd) return base::system_failure(path, errno);
  return fd;
}

void set_error_target(os::Fd fd) {
  error_sink->set_target(std::move(fd));
}

void set_access_target(os::Fd fd) {
  access_sink->set_target(std::move(fd));
}

void set_level(spdlog::level::level_enum level) {
  spdlog::default_logger_raw()->set_level(level);
}

void set_process_name(std::string name) {
  error_sink->set_pattern(std::string(kErrorPattern) + " [" + std::move(name) + "] %v");
}

bool access_enabled() {
  return access_sink->has_target();
}

void access(std::string_view line) {
  access_logger->info(spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace tlsproxy::log
