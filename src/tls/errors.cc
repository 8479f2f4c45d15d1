#include "tls/errors.h"

#include <openssl/err.h>

#include <cstring>

#include "base/strings.h"

namespace tlsproxy::tls {
namespace {

// The oldest ones name the cause; what follows was added by the callers on the way out.
constexpr int kMostErrors = 3;

std::string text_of(unsigned long code, const char* detail) {
  std::string text;
  if (ERR_SYSTEM_ERROR(code)) {
    text = std::strerror(ERR_GET_REASON(code));
  } else if (const char* reason = ERR_reason_error_string(code)) {
    text = reason;
  } else {
    char numbers[128];
    ERR_error_string_n(code, numbers, sizeof(numbers));
    text = numbers;
  }
  if (detail != nullptr && *detail != '\0') text += " (" + base::escape(detail, 128) + ")";
  return text;
}

}  // namespace

std::string take_errors() {
  std::string line;
  std::string last;
  int told = 0;
  const char* detail = nullptr;
  int flags = 0;
  while (const unsigned long code = ERR_get_error_all(nullptr, nullptr, nullptr, &detail, &flags)) {
    if (told == kMostErrors) continue;
    std::string text = text_of(code, (flags & ERR_TXT_STRING) != 0 ? detail : nullptr);
    if (text == last) continue;
    if (told++ > 0) line += "; ";
    line += text;
    last = std::move(text);
  }
  return line;
}

}  // namespace tlsproxy::tls
