// Checks across the whole configuration: what no single map can tell.
#pragma once

#include "config/diagnostics.h"
#include "config/model.h"

namespace tlsproxy::config {

// Reports routes to backends that do not exist, backends that nothing leads to (a warning), and addresses
// that two sockets would listen on. What a failed reading left empty is passed over.
void check_references(const Config& config, Diagnostics& diagnostics);

}  // namespace tlsproxy::config
