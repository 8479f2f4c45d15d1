#include "record/close_reason.h"

#include <set>
#include <string>

#include "support/catch.h"

using namespace tlsproxy::record;

TEST_CASE("every reason has a word of its own", "[close_reason]") {
  std::set<std::string> words;
  for (int i = 0; i < kCloseReasons; ++i) {
    const std::string word(to_string(static_cast<CloseReason>(i)));
    CHECK_FALSE(word.empty());
    CHECK(word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos);
    words.insert(word);
  }
  CHECK(words.size() == kCloseReasons);
  CHECK(to_string(CloseReason::certificate_rejected) == "certificate_rejected");
}

TEST_CASE("every side has a word of its own", "[close_reason]") {
  CHECK(to_string(Side::client) == "client");
  CHECK(to_string(Side::backend) == "backend");
  CHECK(to_string(Side::proxy) == "proxy");
}

TEST_CASE("a stream that may lack bytes is never told complete", "[close_reason]") {
  for (const CloseReason reason : {CloseReason::reset, CloseReason::truncated, CloseReason::protocol_error,
                                   CloseReason::write_timeout, CloseReason::no_memory}) {
    INFO(to_string(reason));
    CHECK_FALSE(is_orderly(reason));
  }
}

TEST_CASE("a refusal before any stream began is told in order, so that its alert arrives", "[close_reason]") {
  for (const CloseReason reason :
       {CloseReason::not_tls, CloseReason::bad_hello, CloseReason::handshake_failed,
        CloseReason::certificate_rejected, CloseReason::name_changed, CloseReason::handshake_timeout}) {
    INFO(to_string(reason));
    CHECK(is_orderly(reason));
  }
}

TEST_CASE("an end that the proxy's policy chose is told in order", "[close_reason]") {
  for (const CloseReason reason :
       {CloseReason::finished, CloseReason::client_left, CloseReason::no_route, CloseReason::no_backend,
        CloseReason::backend_tls_failed, CloseReason::backend_rejected, CloseReason::preread_timeout,
        CloseReason::connect_timeout, CloseReason::idle_timeout, CloseReason::half_close_timeout,
        CloseReason::drain, CloseReason::stopped, CloseReason::no_descriptor}) {
    INFO(to_string(reason));
    CHECK(is_orderly(reason));
  }
}
