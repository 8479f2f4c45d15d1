// Result<T>: a value, or an Error that says in one sentence what failed and why.
//
// Used wherever set-up can fail: configuration, files, sockets. The data path has its own
// transport::IoResult, which carries no text. After start-up no exception crosses a function's edge.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tlsproxy::base {

struct Error {
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> failure(std::string message) {
  return tl::unexpected<Error>(Error{std::move(message)});
}

// "WHAT: text of errno", the form of every failed system call's message.
tl::unexpected<Error> system_failure(const std::string& what, int error_number);

}  // namespace tlsproxy::base
