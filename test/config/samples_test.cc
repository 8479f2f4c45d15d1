// The samples under conf/, the manual page, and what can be made of them by chance.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "config/loading.h"
#include "config/yaml_tree.h"
#include "support/catch.h"

using namespace tlsproxy;
using namespace tlsproxy::config;

namespace {

const std::filesystem::path kSource = TLSPROXY_SOURCE_DIR;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  INFO(path.string());
  REQUIRE(in);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

std::vector<std::filesystem::path> samples() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "conf")) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Whether the tree has a value under this path; a list is searched item by item, NAME stands for any key.
bool has_path(const Node& node, std::string_view path) {
  if (path.empty()) return true;
  for (const Node& item : node.items) {
    if (has_path(item, path)) return true;
  }
  const std::string_view key = path.substr(0, path.find('.'));
  const std::string_view rest = key.size() == path.size() ? "" : path.substr(key.size() + 1);
  for (const Entry& entry : node.entries) {
    if ((entry.key == key || key == "NAME") && has_path(entry.value, rest)) return true;
  }
  return false;
}

// The keys that the manual page describes: those at the head of a tagged paragraph, or named in the
// text in bold.
bool manual_has(const std::string& manual, const std::string& key) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::istringstream lines(manual);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(".B")) continue;
    for (std::size_t at = line.find(key); at != std::string::npos; at = line.find(key, at + 1)) {
      const bool begins = at == 0 || (!is_word(line[at - 1]) && line[at - 1] != '\\') || line[at - 1] == '~';
      const std::size_t end = at + key.size();
      if (begins && (end == line.size() || !is_word(line[end]))) return true;
    }
  }
  return false;
}

const std::string kKitchenSink = R"(
workers: 2
user: "on"
drain: 1h30m
drain_after_reload: 1500ms
buffer_memory: 1536M
log: {level: off, path: "a file: with #odd name", access: {path: stdout, format: json}}
resolver: {servers: ["2001:db8::1", "[::1]:5353"], valid: 90s, ipv6: off}
listeners:
  - name: "1e3"
    bind: [443, ":444-446", "[::1]:0", "[::1]:0", "unix:@abstract", "systemd:fd", {address: "[::]:80", v6only: off, backlog: 1}]
    tls:
      certificates: [{chain: "ä.pem"}, {self_signed: true}]
      alpn: [h2, "odd \" \\ name", "\u00e4"]
      client_auth: {mode: required, ca: ca.pem, crl: [a.pem, b.pem]}
      hosts:
        - {sni: A.example, alpn: [], client_auth: {mode: none}}
        - {sni: ["*.a.example"], client_auth: {ca: other.pem, crl: []}, certificates: {chain: x}}
    to: "null"
  - name: pass
    bind: "127.0.0.1:0"
    half_close: off
    tls: passthrough
    routes:
      - {sni: ["*.b", c], alpn: x, source: ["10.0.0.0/8", "::/0", "::ffff:192.0.2.0/120"], tls: off, to: r}
      - {tls: true, to: e}
      - {to: s}
backends:
  "null": [{address: "A.Example.:80", weight: 65535, max_fails: 0, backup: true}, "unix:/x y", {address: "b:1", down: on}]
  r: {respond: "\0\t\r\n\x7f \u0085\u2028 \"quoted\" # no comment: 'x'\n"}
  e: {echo: yes}
  s: {servers: "[::1]:1", tries: 1000, tls: {server_name: X., certificate: {chain: c}, alpn: a, crl: z, depth: 0}}
)";

std::string round_trip(const std::string& yaml) {
  const auto loaded = load(yaml);
  INFO(yaml);
  INFO(joined(loaded.lines));
  REQUIRE(loaded.lines.empty());
  return to_yaml(loaded.config);
}

}  // namespace

TEST_CASE("every sample loads without a word", "[samples]") {
  REQUIRE(samples().size() >= 6);
  for (const auto& path : samples()) {
    INFO(path.string());
    CHECK(joined(load(read_file(path)).lines).empty());
  }
}

TEST_CASE("what is written of a configuration is read back to the same", "[samples]") {
  std::vector<std::string> texts{kKitchenSink};
  for (const auto& path : samples()) texts.push_back(read_file(path));
  for (const std::string& text : texts) {
    const std::string written = round_trip(text);
    CHECK(round_trip(written) == written);
  }
}

TEST_CASE("odd texts survive being written", "[samples]") {
  const Config first = load(kKitchenSink).config;
  const Config again = load(to_yaml(first)).config;
  REQUIRE(again.backends.size() == 4);
  CHECK(again.backends.at(1).respond == first.backends.at(1).respond);
  CHECK(again.backends.at(1).respond.size() > 30);
  CHECK(again.log.path.value == "a file: with #odd name");
  CHECK(again.listeners.at(0).name == "1e3");
  CHECK(again.listeners.at(0).bind.size() == first.listeners.at(0).bind.size());
  CHECK(again.listeners.at(0).tls.hosts.at(0).policy.alpn.empty());
  CHECK(again.listeners.at(0).tls.hosts.at(0).policy.client_auth.mode == ClientAuthMode::none);
  CHECK(again.listeners.at(0).tls.hosts.at(1).policy.client_auth.crl.empty());
  CHECK(again.listeners.at(0).tls.policy.alpn.at(1).value == "odd \" \\ name");
}

TEST_CASE("the first try needs no file and no second worker", "[samples]") {
  const Config config = load(read_file(kSource / "conf/quickstart.yaml")).config;
  CHECK(config.workers == 1);
  CHECK(config.log.access.value().path.value == "stdout");
  CHECK(config.log.access.value().format == LogFormat::logfmt);
  REQUIRE(config.listeners.size() == 2);
  CHECK(config.listeners[0].name == "web");
  CHECK(config.listeners[0].bind.at(0).address.to_string() == "127.0.0.1:8443");
  CHECK(config.listeners[0].tls.policy.certificates.at(0).self_signed);
  CHECK(config.listeners[1].name == "echo");
  CHECK(config.listeners[1].bind.at(0).address.to_string() == "127.0.0.1:7007");
  CHECK(config.backends.at(0).respond == "hello over TLS\n");
}

TEST_CASE("the schema knows its keys", "[samples]") {
  const auto keys = yaml_keys();
  const auto has = [&](std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  CHECK(has("workers"));
  CHECK(has("log.access.format"));
  CHECK(has("listeners.bind.v6only"));
  CHECK(has("listeners.tls.certificates.self_signed"));
  CHECK(has("listeners.tls.hosts.client_auth.crl"));
  CHECK(has("listeners.routes.source"));
  CHECK(has("backends.NAME.servers.fail_timeout"));
  CHECK(has("backends.NAME.tls.certificate.password_file"));
  CHECK(keys.size() > 90);
}

TEST_CASE("every key stands in the reference", "[samples]") {
  Diagnostics diagnostics("reference.yaml");
  const auto reference = parse_yaml(read_file(kSource / "conf/reference.yaml"), diagnostics);
  REQUIRE(reference);
  for (const std::string& key : yaml_keys()) {
    INFO(key);
    // A host's keys are those of tls; self_signed stands in the second entry.
    CHECK(has_path(*reference, key));
  }
  CHECK_FALSE(has_path(*reference, "listeners.tls.no_such_key"));
}

TEST_CASE("every key stands in the manual", "[samples]") {
  const std::string manual = read_file(kSource / "packaging/tlsproxy.yaml.5");
  for (const std::string& path : yaml_keys()) {
    INFO(path);
    CHECK(manual_has(manual, path.substr(path.rfind('.') + 1)));
  }
  CHECK_FALSE(manual_has(manual, "no_such_key"));
  CHECK_FALSE(manual_has(manual, "listen"));
}

namespace {

// Text that means something to YAML or to us, for putting anywhere.
constexpr std::string_view kSpice[] = {
    ": ",       "- ",
    "\n",       "\n  ",
    "\n\t",     "[",
    "]",        "{",
    "}",        ",",
    "\"",       "'",
    "# ",       "&a ",
    "*a",       "<<: ",
    "!!str ",   "!x ",
    "? ",       "|\n",
    ">-\n",     "---\n",
    "...\n",    "~",
    "null",     "true",
    "off",      "0443",
    "-1",       "1e3",
    "0x10",     "99999999999999999999",
    "5s",       "1h30m",
    "16k",      "::",
    "[::]:443", "22:22",
    "unix:",    "systemd:x",
    "*.a.b",    "127.0.0.1:1-9",
    "\r\n",     "\xef\xbb\xbf",
    "\xff",     "%YAML 1.2\n",
    "sni: ",    "tls: ",
    "to: ",     "routes:",
    "hosts:",   "servers:",
    "bind:",    "client_auth: {mode: required}",
};

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string change(std::string text) {
    for (std::size_t times = 1 + below(4); times > 0; --times) change_once(text);
    return text;
  }
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

 private:
  void change_once(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(40, text.size() - at + 1));
    switch (below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kSpice[below(std::size(kSpice))]);
        break;
      case 2:
        text.replace(at, length, kSpice[below(std::size(kSpice))]);
        break;
      case 3:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      default:
        text.resize(at);
    }
  }

  std::mt19937 random_;
};

std::uint32_t seed_of_run() {
  const char* given = std::getenv("TLSPROXY_TEST_SEED");
  return given == nullptr ? 20261201U : static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10));
}

}  // namespace

TEST_CASE("whatever becomes of a file, its errors have places and its meaning survives", "[samples]") {
  const std::uint32_t seed = seed_of_run();
  INFO("TLSPROXY_TEST_SEED=" << seed);
  Mutator mutator(seed);
  std::vector<std::string> texts{kKitchenSink};
  for (const auto& path : samples()) texts.push_back(read_file(path));
  std::size_t refused = 0;
  std::size_t accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = mutator.change(texts[mutator.below(texts.size())]);
    const auto loaded = load(text);
    const int line_count = 1 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    for (const auto& entry : loaded.diagnostics.entries()) {
      if (entry.mark.line >= 1 && entry.mark.line <= line_count + 1 && entry.mark.column >= 1 &&
          !entry.message.empty()) {
        continue;
      }
      INFO(text);
      INFO(joined(loaded.lines));
      FAIL("an error without a place in the file");
    }
    if (loaded.diagnostics.failed()) {
      ++refused;
      continue;
    }
    ++accepted;
    const std::string written = to_yaml(loaded.config);
    const auto again = load(written);
    if (again.diagnostics.failed() || to_yaml(again.config) != written) {
      INFO(text);
      INFO(written);
      INFO(joined(again.lines));
      FAIL("what was written is not what was read");
    }
  }
  // Both ways must have been taken often, or the changes test nothing.
  CHECK(refused > 500);
  CHECK(accepted > 100);
}
