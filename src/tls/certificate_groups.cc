#include "tls/certificate_groups.h"

#include <algorithm>

namespace tlsproxy::tls {
namespace {

const Identity* with_key_type(const CertificateGroup& group, int key_type) {
  for (const Identity* identity : group) {
    if (identity->key_type() == key_type) return identity;
  }
  return nullptr;
}

// Whether `identity` can stand in wherever `first` does. One without names stands in for its like only.
bool covers_names_of(const Identity& identity, const Identity& first) {
  if (first.names().empty()) return identity.names().empty();
  return std::all_of(first.names().begin(), first.names().end(), [&identity](const std::string& name) {
    return std::find(identity.names().begin(), identity.names().end(), name) != identity.names().end();
  });
}

void add_shadow(CertificateGroups& groups, const Identity* later, const Identity* first,
                const std::string& name) {
  for (CertificateGroups::Shadow& shadow : groups.shadows) {
    if (shadow.later == later && shadow.first == first) {
      shadow.names.push_back(name);
      return;
    }
  }
  groups.shadows.push_back({later, first, {name}});
}

}  // namespace

CertificateGroups group_by_name(const std::vector<const Identity*>& identities) {
  CertificateGroups groups;
  for (const Identity* identity : identities) {
    for (const std::string& name : identity->names()) {
      CertificateGroup& group = groups.by_name[name];
      if (const Identity* first = with_key_type(group, identity->key_type())) {
        add_shadow(groups, identity, first, name);
      } else {
        group.push_back(identity);
      }
    }
    const bool in_fallback =
        groups.fallback.empty() || (covers_names_of(*identity, *groups.fallback.front()) &&
                                    with_key_type(groups.fallback, identity->key_type()) == nullptr);
    if (in_fallback) groups.fallback.push_back(identity);
    if (!in_fallback && identity->names().empty()) groups.unreachable.push_back(identity);
  }
  return groups;
}

std::string wildcard_for(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot + 1 == name.size()) return {};
  return "*" + std::string(name.substr(dot));
}

}  // namespace tlsproxy::tls
