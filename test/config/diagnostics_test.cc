#include "config/diagnostics.h"

#include <string>

#include "support/catch.h"

using namespace tlsproxy::config;

TEST_CASE("diagnostics are told in the order of their places", "[diagnostics]") {
  Diagnostics diagnostics("f.yaml");
  diagnostics.error({10, 1}, "late");
  diagnostics.warning({2, 9}, "second");
  diagnostics.error({2, 3}, "first");
  diagnostics.error({}, "of the whole file");
  CHECK(diagnostics.lines() ==
        std::vector<std::string>{"f.yaml: error: of the whole file", "f.yaml:2:3: error: first",
                                 "f.yaml:2:9: warning: second", "f.yaml:10:1: error: late"});
}

TEST_CASE("warnings alone are no failure", "[diagnostics]") {
  Diagnostics diagnostics("f");
  diagnostics.warning({1, 1}, "odd");
  CHECK_FALSE(diagnostics.failed());
  diagnostics.error({1, 1}, "wrong");
  CHECK(diagnostics.failed());
  CHECK(diagnostics.errors() == 1);
}

TEST_CASE("the same message about the same place is told once", "[diagnostics]") {
  Diagnostics diagnostics("f");
  for (int i = 0; i < 3; ++i) diagnostics.error({4, 2}, "wrong");
  diagnostics.error({4, 3}, "wrong");
  CHECK(diagnostics.errors() == 2);
  CHECK(diagnostics.lines().size() == 2);
}

TEST_CASE("after the limit errors are counted, and warnings do not use up their room", "[diagnostics]") {
  Diagnostics diagnostics("f");
  const int limit = static_cast<int>(Diagnostics::kLimit);
  for (int i = 1; i <= 2 * limit; ++i) diagnostics.warning({i, 1}, "odd");
  for (int i = 1; i <= limit + 5; ++i) diagnostics.error({i, 2}, "wrong");
  CHECK(diagnostics.full());
  CHECK(diagnostics.errors() == Diagnostics::kLimit + 5);
  CHECK(diagnostics.entries().size() == 2 * Diagnostics::kLimit);
  CHECK(diagnostics.lines().back() == "f: error: 5 more of these are not shown");
}
