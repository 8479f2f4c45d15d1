#include "server/privileges.h"

#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::server;

namespace {

constexpr uid_t kRoot = 0;
constexpr uid_t kSomebody = 12345;

config::Config with_user(std::string user, std::string group = {}) {
  config::Config config;
  config.user = {std::move(user), {2, 7}};
  config.group = {std::move(group), {3, 8}};
  return config;
}

struct Found {
  std::optional<Identity> identity;
  std::vector<std::string> lines;
};

Found find(const config::Config& config, uid_t uid) {
  config::Diagnostics diagnostics("test.yaml");
  Found found;
  found.identity = find_identity(config, uid, diagnostics);
  found.lines = diagnostics.lines();
  return found;
}

// The exit status of `body` in a child, since what it does cannot be undone.
template <class F>
int in_child(F body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("root without a user is refused, and told what to set", "[privileges]") {
  const Found found = find({}, kRoot);
  CHECK_FALSE(found.identity);
  REQUIRE(found.lines.size() == 1);
  CHECK(found.lines[0].find("set 'user: NAME'") != std::string::npos);
  CHECK(found.lines[0].find("'user: root'") != std::string::npos);
}

TEST_CASE("root on purpose is allowed, with a warning", "[privileges]") {
  const Found found = find(with_user("root"), kRoot);
  REQUIRE(found.identity);
  CHECK(found.identity->change == Identity::Change::keep_root);
  REQUIRE(found.lines.size() == 1);
  CHECK(found.lines[0].starts_with("test.yaml:2:7: warning: "));
}

TEST_CASE("a user brings its own group, unless another is given", "[privileges]") {
  const passwd* nobody = ::getpwnam("nobody");
  REQUIRE(nobody != nullptr);
  const uid_t uid = nobody->pw_uid;
  const gid_t gid = nobody->pw_gid;
  const Found own = find(with_user("nobody"), kRoot);
  REQUIRE(own.identity);
  CHECK(own.identity->change == Identity::Change::take_on_user);
  CHECK(own.identity->uid == uid);
  CHECK(own.identity->gid == gid);
  CHECK(own.identity->groups == std::vector<gid_t>{gid});
  CHECK(own.lines.empty());

  const Found other = find(with_user("nobody", "daemon"), kRoot);
  REQUIRE(other.identity);
  CHECK(other.identity->gid != gid);
}

TEST_CASE("users and groups that do not exist are named with their place", "[privileges]") {
  const Found user = find(with_user("no-such-user"), kRoot);
  CHECK_FALSE(user.identity);
  REQUIRE(user.lines.size() == 1);
  CHECK(user.lines[0].starts_with("test.yaml:2:7: error: there is no user 'no-such-user'"));

  const Found group = find(with_user("nobody", "no-such-group"), kRoot);
  CHECK_FALSE(group.identity);
  REQUIRE(group.lines.size() == 1);
  CHECK(group.lines[0].starts_with("test.yaml:3:8: error: there is no group 'no-such-group'"));
}

TEST_CASE("who is not root cannot change its user: a warning, unless nothing would change", "[privileges]") {
  CHECK(find({}, kSomebody).lines.empty());
  const Found found = find(with_user("nobody"), kSomebody);
  REQUIRE(found.identity);
  CHECK(found.identity->change == Identity::Change::none);
  REQUIRE(found.lines.size() == 1);
  CHECK(found.lines[0].starts_with("test.yaml:2:7: warning: 'user' is ignored"));
  CHECK(find(with_user("root"), ::getpwnam("root")->pw_uid + kSomebody).lines.size() == 1);
  CHECK(find(with_user("nobody"), ::getpwnam("nobody")->pw_uid).lines.empty());
}

TEST_CASE("a worker cannot get back what it gave up", "[privileges]") {
  const bool root = ::geteuid() == 0;
  Identity identity;
  if (root) identity = find(with_user("nobody"), kRoot).identity.value();
  const int status = in_child([&identity, root] {
    if (!drop_privileges(identity)) return 1;
    if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 2;
    for (int capability = 0; capability < 64; ++capability) {
      if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, capability, 0, 0) == 1) return 3;
      if (root && ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1) return 4;
    }
    if (root && (::geteuid() != identity.uid || ::getuid() != identity.uid)) return 5;
    if (root && (::getegid() != identity.gid || ::setuid(0) == 0 || ::setgid(0) == 0)) return 6;
    return 0;
  });
  CHECK(status == 0);
}
