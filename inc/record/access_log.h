// AccessLog: one line per session, written at its end.
#pragma once

#include <string>

#include "config/model.h"
#include "record/session_record.h"

namespace tlsproxy::record {

// One line without its newline. Keys and their order are the same in both formats and are documented in
// tlsproxy(8); a fact that is absent is left out. Everything a peer chose is escaped.
std::string format_line(const SessionRecord& record, config::LogFormat format);

}  // namespace tlsproxy::record
