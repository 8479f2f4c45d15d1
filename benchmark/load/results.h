// Results: what a run has shown, as JSON. The fields are described in INTERFACE.md.
#pragma once

#include <nlohmann/json.hpp>

#include "generator.h"
#include "options.h"

namespace tlsproxy::load {

nlohmann::ordered_json to_json(const Options& options, const Generator& generator);

}  // namespace tlsproxy::load
