// Who the workers are: looked up by the master, taken on by each worker before it reads a byte.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/diagnostics.h"
#include "config/model.h"

namespace tlsproxy::server {

struct Identity {
  enum class Change {
    none,          // not started as root: stay who we are
    keep_root,     // `user: root` was written
    take_on_user,  // become uid, gid and groups
  };
  Change change = Change::none;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;

  friend bool operator==(const Identity&, const Identity&) = default;
};

// The workers' identity by `user` and `group`, when the master runs as `master_uid`. Reports unknown
// names, and a root master whose configuration does not say who the workers are: that is never a
// default. Needs the user database, so it is not for workers.
std::optional<Identity> find_identity(const config::Config& config, uid_t master_uid,
                                      config::Diagnostics& diagnostics);

// Takes the identity on for good and gives up every capability; with keep_root only forbids gaining
// more by exec. Checks that there is no way back.
base::Status drop_privileges(const Identity& identity);

}  // namespace tlsproxy::server
