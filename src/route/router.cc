#include "route/router.h"

#include <algorithm>
#include <array>
#include <span>

namespace tlsproxy::route {
namespace {

constexpr std::string_view kWildcard = "*.";

bool is_wildcard(std::string_view pattern) {
  return pattern.starts_with(kWildcard);
}

// ".suffix": what a wildcard pattern and a name have in common when they match.
std::string_view after_first_label(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == 0 || dot == std::string_view::npos ? std::string_view{} : name.substr(dot);
}

bool source_holds(const config::Route& route, const Facts& facts) {
  return route.source.empty() ||
         std::any_of(route.source.begin(), route.source.end(),
                     [&](const os::Network& network) { return network.contains(facts.source); });
}

bool alpn_holds(const config::Route& route, const Facts& facts) {
  return route.alpn.empty() ||
         std::any_of(route.alpn.begin(), route.alpn.end(), [&](const config::Text& protocol) {
           return std::find(facts.alpn.begin(), facts.alpn.end(), protocol.value) != facts.alpn.end();
         });
}

bool all_but_name_hold(const config::Route& route, const Facts& facts) {
  return (!route.tls || *route.tls == facts.tls) && alpn_holds(route, facts) && source_holds(route, facts);
}

}  // namespace

Router::Router(const std::vector<config::Route>& routes) : routes_(&routes) {
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const config::Route& route = routes[i];
    needs_hello_ = needs_hello_ || !route.sni.empty() || !route.alpn.empty() || route.tls.has_value();
    if (route.sni.empty()) nameless_.push_back(i);
    for (const config::Text& pattern : route.sni) {
      const std::string_view text = pattern.value;
      (is_wildcard(text) ? by_suffix_[text.substr(1)] : by_name_[text]).push_back(i);
    }
  }
}

const config::Route* Router::match(const Facts& facts) const {
  const auto listed = [](const Index& index, std::string_view key) -> std::span<const std::size_t> {
    const auto found = key.empty() ? index.end() : index.find(key);
    return found == index.end() ? std::span<const std::size_t>{} : found->second;
  };
  // Three lists of routes whose test of the name holds, each ascending: merged, so that the first wins.
  std::array<std::span<const std::size_t>, 3> lists{
      listed(by_name_, facts.sni), listed(by_suffix_, after_first_label(facts.sni)), nameless_};
  for (;;) {
    std::span<const std::size_t>* next = nullptr;
    for (auto& list : lists) {
      if (!list.empty() && (next == nullptr || list.front() < next->front())) next = &list;
    }
    if (next == nullptr) return nullptr;
    const config::Route& route = (*routes_)[next->front()];
    if (all_but_name_hold(route, facts)) return &route;
    *next = next->subspan(1);
  }
}

bool name_matches(std::string_view pattern, std::string_view name) {
  if (name.empty()) return false;
  return is_wildcard(pattern) ? after_first_label(name) == pattern.substr(1) : pattern == name;
}

}  // namespace tlsproxy::route
