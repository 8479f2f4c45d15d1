#include "config/checks.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "config/notation.h"

namespace tlsproxy::config {
namespace {

void check_targets(const Config& config, Diagnostics& diagnostics) {
  std::set<std::string_view> used;
  std::set<std::string_view> names;
  for (const Backend& backend : config.backends) names.insert(backend.name);
  for (const Listener& listener : config.listeners) {
    for (const Route& route : listener.routes) {
      if (route.to.value.empty()) continue;
      used.insert(route.to.value);
      if (names.count(route.to.value) > 0) continue;
      std::string message = "there is no backend '" + base::escape(route.to.value, 64) + "'";
      // Looking through all names is worth it only for an error that will be seen.
      const std::string_view near =
          diagnostics.full() ? "" : base::nearest(route.to.value, {names.begin(), names.end()});
      if (!near.empty()) message += "; did you mean '" + std::string(near) + "'?";
      diagnostics.error(route.to.mark, std::move(message));
    }
  }
  if (diagnostics.failed()) return;  // a route that was meant for it may be among the errors
  for (const Backend& backend : config.backends) {
    if (used.count(backend.name) == 0) {
      diagnostics.warning(backend.mark, "no route leads to the backend '" + backend.name + "'");
    }
  }
}

// Every address has one owner. Of a range that collides only the first port is told.
class Addresses {
 public:
  explicit Addresses(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  void claim(const Listener& listener, const Bind& bind) {
    if (bind.address.is_ip() && bind.address.port() == 0) return;
    const std::string address = bind_text(bind);
    const auto [owner, fresh] = owners_.emplace(address, Owner{&listener, &bind});
    if (!fresh) return collide(address, owner->second, bind);
    // [::]:N without v6only is 0.0.0.0:N as well.
    const std::string port = ":" + std::to_string(bind.address.port());
    if (address == "[::]" + port && !bind.v6only) {
      if (const auto other = owners_.find("0.0.0.0" + port); other != owners_.end()) {
        collide(address + " without v6only", other->second, bind);
      }
    } else if (address == "0.0.0.0" + port) {
      const auto other = owners_.find("[::]" + port);
      if (other != owners_.end() && !other->second.bind->v6only) collide(address, other->second, bind);
    }
  }

 private:
  struct Owner {
    const Listener* listener;
    const Bind* bind;
  };

  void collide(const std::string& address, const Owner& owner, const Bind& bind) {
    const Mark first = owner.bind->text.mark;
    const Mark second = bind.text.mark;
    if (!told_.insert({first.line, first.column, second.line, second.column}).second) return;
    diagnostics_.error(second, "'" + address + "' is taken by listener '" + owner.listener->name +
                                   "' at line " + std::to_string(first.line) + ", column " +
                                   std::to_string(first.column));
  }

  Diagnostics& diagnostics_;
  std::map<std::string, Owner> owners_;
  std::set<std::vector<int>> told_;
};

}  // namespace

void check_references(const Config& config, Diagnostics& diagnostics) {
  Addresses addresses(diagnostics);
  for (const Listener& listener : config.listeners) {
    for (const Bind& bind : listener.bind) addresses.claim(listener, bind);
  }
  check_targets(config, diagnostics);
}

}  // namespace tlsproxy::config
