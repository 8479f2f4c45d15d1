// load_yaml: the YAML front end. Text in, structs and diagnostics out; no file, no socket.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostics.h"
#include "config/model.h"

namespace tlsproxy::config {

// Reads one YAML document into a Config. Everything wrong with it is reported to `diagnostics` with
// its place; when diagnostics.failed() the returned value must not be used. Bounded in time and
// memory for any input. Checked here: syntax, keys, types, units, ranges, addresses, names that refer
// to each other (route to backend). Not checked here: anything that needs a file (tls/ does).
Config load_yaml(std::string_view text, Diagnostics& diagnostics);

// The effective configuration with every default written out, as YAML that load_yaml() accepts and
// that gives an equal Config, unless it is larger than load_yaml() takes (each entry of `hosts` has its
// whole policy written out). Secrets are file names only, so it is safe to show.
std::string to_yaml(const Config& config);

// Every key there is, as a path: "listeners.timeouts.idle", "backends.NAME.servers.weight".
std::vector<std::string> yaml_keys();

}  // namespace tlsproxy::config
