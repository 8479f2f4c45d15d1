#include "server/overrides.h"

#include <cstdlib>
#include <string>

#include "support/catch.h"

using namespace tlsproxy;
using server::Overrides;

namespace {

// A variable of the environment, as long as this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("without variables nothing is forced, nor with empty ones", "[overrides]") {
  ::unsetenv("TLSPROXY_BLOCKS");
  ::unsetenv("TLSPROXY_SPLICE");
  CHECK(Overrides::from_environment()->blocks == buffer::BlockPool::kCapacities);
  CHECK(Overrides::from_environment()->splice == relay::SpliceWhen::bulk);
  const Variable blocks("TLSPROXY_BLOCKS", "");
  const Variable splice("TLSPROXY_SPLICE", "");
  CHECK(Overrides::from_environment()->blocks == buffer::BlockPool::kCapacities);
  CHECK(Overrides::from_environment()->splice == relay::SpliceWhen::bulk);
}

TEST_CASE("block sizes and splicing can be forced", "[overrides]") {
  const Variable blocks("TLSPROXY_BLOCKS", "1,16384,65536");
  CHECK(Overrides::from_environment()->blocks == buffer::BlockPool::Capacities{1, 16384, 65536});
  const Variable always("TLSPROXY_SPLICE", "always");
  CHECK(Overrides::from_environment()->splice == relay::SpliceWhen::always);
  const Variable never("TLSPROXY_SPLICE", "never");
  CHECK(Overrides::from_environment()->splice == relay::SpliceWhen::never);
}

TEST_CASE("what cannot be forced is an error that names its variable", "[overrides]") {
  for (const char* bad : {"x", "1", "1,2", "1,2,", "1,2,3,", "1,2,3,4", "0,1,2", "1,1,2", "3,2,1", "-1,2,3",
                          " 1,2,3", "1, 2,3", "1,2,65537", "1,2,99999999999999999999"}) {
    INFO(bad);
    const Variable blocks("TLSPROXY_BLOCKS", bad);
    const auto overrides = Overrides::from_environment();
    REQUIRE_FALSE(overrides);
    CHECK(overrides.error().message.find("TLSPROXY_BLOCKS: '" + std::string(bad) + "'") == 0);
  }
  const Variable splice("TLSPROXY_SPLICE", "sometimes");
  const auto overrides = Overrides::from_environment();
  REQUIRE_FALSE(overrides);
  CHECK(overrides.error().message == "TLSPROXY_SPLICE: 'sometimes' is neither always nor never");
}
