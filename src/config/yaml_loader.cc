#include "config/yaml_loader.h"

#include "config/checks.h"
#include "config/schema.h"
#include "config/yaml_tree.h"

namespace tlsproxy::config {

Config load_yaml(std::string_view text, Diagnostics& diagnostics) {
  Config config;
  const auto root = parse_yaml(text, diagnostics);
  if (!root) return config;
  if (root->kind != Node::Kind::map) {
    diagnostics.error(root->mark,
                      "a configuration is a map of keys, as 'workers: auto'; a space follows each colon");
    return config;
  }
  Reading reading{diagnostics};
  Map<ConfigKeys>::read(Item{*root, "", reading}, config);
  check_references(config, diagnostics);
  return config;
}

std::string to_yaml(const Config& config) {
  return write_yaml(Map<ConfigKeys>::write(config).value());
}

std::vector<std::string> yaml_keys() {
  std::vector<std::string> keys;
  Map<ConfigKeys>::keys("", keys);
  return keys;
}

}  // namespace tlsproxy::config
