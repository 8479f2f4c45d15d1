#include "server/candidate.h"

#include "support/catch.h"

using tlsproxy::server::ConfigPlace;

TEST_CASE("relative paths begin at the configuration's folder, unless a prefix is given", "[candidate]") {
  CHECK(ConfigPlace::of("conf/a.yaml", "").resolve("web.pem") == "conf/web.pem");
  CHECK(ConfigPlace::of("/etc/tlsproxy/a.yaml", "").resolve("log/x") == "/etc/tlsproxy/log/x");
  CHECK(ConfigPlace::of("a.yaml", "").resolve("web.pem") == "./web.pem");
  CHECK(ConfigPlace::of("/etc/tlsproxy/a.yaml", "/srv").resolve("web.pem") == "/srv/web.pem");
}

TEST_CASE("absolute paths stay as they are", "[candidate]") {
  CHECK(ConfigPlace::of("conf/a.yaml", "/srv").resolve("/run/x.pid") == "/run/x.pid");
}

TEST_CASE("the configuration file itself is not under the prefix", "[candidate]") {
  CHECK(ConfigPlace::of("conf/a.yaml", "/srv").file == "conf/a.yaml");
}

TEST_CASE("a file that cannot be read is one error that names it", "[candidate]") {
  tlsproxy::config::Diagnostics diagnostics("/no/such.yaml");
  CHECK_FALSE(check_configuration(ConfigPlace::of("/no/such.yaml", ""), 1, diagnostics));
  REQUIRE(diagnostics.lines().size() == 1);
  CHECK(diagnostics.lines()[0] ==
        "/no/such.yaml: error: cannot read '/no/such.yaml': No such file or directory");
}
