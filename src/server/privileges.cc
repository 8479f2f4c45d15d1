#include "server/privileges.h"

#include <cap-ng.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

namespace tlsproxy::server {
namespace {

std::vector<gid_t> groups_of(const char* user, gid_t gid) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  if (::getgrouplist(user, gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(user, gid, groups.data(), &count) < 0) return {gid};
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

void warn_that_user_is_ignored(const config::Config& config, uid_t uid, config::Diagnostics& diagnostics) {
  const passwd* self = config.user.value.empty() ? nullptr : ::getpwnam(config.user.value.c_str());
  const bool is_self = self != nullptr && self->pw_uid == uid;
  if (!config.user.value.empty() && !is_self) {
    diagnostics.warning(config.user.mark, "'user' is ignored: only a master started as root can change it");
  }
  if (!config.group.value.empty() && config.user.value.empty()) {
    diagnostics.warning(config.group.mark, "'group' is ignored: only a master started as root can change it");
  }
}

base::Status give_up_capabilities() {
  capng_get_caps_process();
  const bool may_narrow = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) == 1;
  capng_clear(CAPNG_SELECT_BOTH);
  // The bounding set can only be narrowed by who has CAP_SETPCAP; no_new_privs closes that way anyhow.
  if (may_narrow && capng_apply(CAPNG_SELECT_BOUNDS) != 0) {
    return base::failure("cannot empty the capability bounding set");
  }
  if (capng_apply(CAPNG_SELECT_CAPS) != 0) return base::system_failure("cannot give up capabilities", errno);
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) {
    return base::system_failure("cannot give up ambient capabilities", errno);
  }
  capng_get_caps_process();
  if (capng_have_capabilities(CAPNG_SELECT_CAPS) != CAPNG_NONE) {
    return base::failure("capabilities are left after all were given up");
  }
  return {};
}

base::Status take_on_user(const Identity& identity) {
  if (::setgroups(identity.groups.size(), identity.groups.data()) != 0) {
    return base::system_failure("cannot set the groups of the workers' user", errno);
  }
  if (::setresgid(identity.gid, identity.gid, identity.gid) != 0) {
    return base::system_failure("cannot become group " + std::to_string(identity.gid), errno);
  }
  // Before the user changes: that takes CAP_SETPCAP away, which emptying the bounding set needs.
  capng_get_caps_process();
  if (capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) == 1) {
    capng_clear(CAPNG_SELECT_BOUNDS);
    if (capng_apply(CAPNG_SELECT_BOUNDS) != 0) {
      return base::failure("cannot empty the capability bounding set");
    }
  }
  if (::setresuid(identity.uid, identity.uid, identity.uid) != 0) {
    return base::system_failure("cannot become user " + std::to_string(identity.uid), errno);
  }
  if (auto status = give_up_capabilities(); !status) return status;
  if (::setresuid(0, 0, 0) == 0 || ::setresgid(0, 0, 0) == 0) {
    return base::failure("root can be regained after it was given up");
  }
  return {};
}

}  // namespace

std::optional<Identity> find_identity(const config::Config& config, uid_t master_uid,
                                      config::Diagnostics& diagnostics) {
  Identity identity;
  if (master_uid != 0) {
    warn_that_user_is_ignored(config, master_uid, diagnostics);
    return identity;
  }
  if (config.user.value.empty()) {
    diagnostics.error({},
                      "started as root without a user for the workers: set 'user: NAME' (an account "
                      "without rights), or 'user: root' to keep root on purpose");
    return std::nullopt;
  }
  const passwd* user = ::getpwnam(config.user.value.c_str());
  if (user == nullptr) {
    diagnostics.error(config.user.mark, "there is no user '" + config.user.value + "' on this machine");
  } else {
    identity.uid = user->pw_uid;
    identity.gid = user->pw_gid;
  }
  const group* group = nullptr;
  if (!config.group.value.empty()) {
    group = ::getgrnam(config.group.value.c_str());
    if (group == nullptr) {
      diagnostics.error(config.group.mark, "there is no group '" + config.group.value + "' on this machine");
      return std::nullopt;
    }
    identity.gid = group->gr_gid;
  }
  if (user == nullptr) return std::nullopt;
  if (identity.uid == 0) {
    diagnostics.warning(config.user.mark,
                        "workers keep root and all its rights, as 'user: " + config.user.value + "' says");
    identity.change = Identity::Change::keep_root;
    return identity;
  }
  identity.change = Identity::Change::take_on_user;
  identity.groups = groups_of(config.user.value.c_str(), identity.gid);
  return identity;
}

base::Status drop_privileges(const Identity& identity) {
  base::Status status;
  switch (identity.change) {
    case Identity::Change::keep_root:
      break;
    case Identity::Change::none:
      status = give_up_capabilities();
      break;
    case Identity::Change::take_on_user:
      status = take_on_user(identity);
      break;
  }
  if (!status) return status;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return base::system_failure("cannot forbid new privileges", errno);
  }
  return {};
}

}  // namespace tlsproxy::server
