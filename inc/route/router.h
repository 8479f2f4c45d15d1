// Router: which backend a connection goes to. First match wins.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model.h"
#include "os/address.h"

namespace tlsproxy::route {

// What a route may test. Views must stay valid during match().
struct Facts {
  os::SocketAddress source;
  std::string_view sni;  // lower case; empty: none sent or not known
  std::vector<std::string> alpn;
  bool tls = false;  // a ClientHello was seen
};

class Router {
 public:
  // `routes` must outlive the router; its marks and names are used as they are.
  explicit Router(const std::vector<config::Route>& routes);

  // The first route whose tests all hold, or null.
  [[nodiscard]] const config::Route* match(const Facts& facts) const;

  // Whether a verdict can depend on the ClientHello: if not, nobody needs to wait for one.
  [[nodiscard]] bool needs_hello() const { return needs_hello_; }

 private:
  const std::vector<config::Route>* routes_;
  bool needs_hello_ = false;
};

// Whether `pattern` (exact, or "*.suffix" for exactly one label) covers `name`; both lower case.
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace tlsproxy::route
