#include "process.h"

#include <dirent.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <string>

namespace tlsproxy::load {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

base::Status pin_to_cpu(int cpu) {
  const std::string what = "cannot run on CPU " + std::to_string(cpu);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return base::system_failure(what, EINVAL);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) return base::system_failure(what, errno);
  return {};
}

std::size_t raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

void keep_time_exactly() {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

base::Result<os::Fd> stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  os::Fd fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd || ::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) {
    return base::system_failure("cannot wait for signals", errno);
  }
  return fd;
}

CpuTime own_cpu_time() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

CpuTime operator-(const CpuTime& a, const CpuTime& b) {
  return {a.user - b.user, a.system - b.system};
}

// schedstat and not stat: it counts nanoseconds, stat whole ticks. It is per thread.
std::optional<Nanoseconds> cpu_time_of(pid_t pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(tasks.c_str()));
  if (!directory) return std::nullopt;
  Nanoseconds sum = 0;
  bool any = false;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream file(tasks + "/" + entry->d_name + "/schedstat");
    Nanoseconds time = 0;
    if (!(file >> time)) continue;  // this thread has just ended
    sum += time;
    any = true;
  }
  return any ? std::optional(sum) : std::nullopt;
}

std::uint64_t ephemeral_ports() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  return file >> first >> last && last >= first ? last - first + 1 : 0;
}

// "TCP: inuse 7 orphan 0 tw 12 alloc 9 mem 1"
std::uint64_t sockets_in_time_wait() {
  std::ifstream file("/proc/net/sockstat");
  std::string word;
  while (file >> word && word != "TCP:") {
  }
  while (file >> word && word != "tw") {
  }
  std::uint64_t count = 0;
  file >> count;
  return count;
}

}  // namespace tlsproxy::load
