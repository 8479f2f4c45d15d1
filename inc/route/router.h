// Router: which backend a connection goes to. First match wins.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/model.h"
#include "os/address.h"

namespace tlsproxy::route {

// What a route may test. Views must stay valid during match().
struct Facts {
  os::SocketAddress source;
  std::string_view sni;               // lower case; empty: none sent or not known
  std::span<const std::string> alpn;  // the client's list, or what was negotiated
  bool tls = false;                   // a ClientHello was seen
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
  // Routes by what they ask of the name, each list in the order of the routes. The keys are views of
  // the routes' own text.
  using Index = std::unordered_map<std::string_view, std::vector<std::size_t>>;

  const std::vector<config::Route>* routes_;
  Index by_name_;                      // exact names
  Index by_suffix_;                    // wildcards, by ".suffix"
  std::vector<std::size_t> nameless_;  // routes that take any name, and none
  bool needs_hello_ = false;
};

// Whether `pattern` (exact, or "*.suffix" for exactly one label) covers `name`; both lower case.
bool name_matches(std::string_view pattern, std::string_view name);

}  // namespace tlsproxy::route
