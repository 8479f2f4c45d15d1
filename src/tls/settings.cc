#include "tls/settings.h"

#include <algorithm>
#include <string_view>

#include "tls/errors.h"

namespace tlsproxy::tls {
namespace {

int number_of(config::TlsVersion version) {
  switch (version) {
    case config::TlsVersion::tls1_0:
      return TLS1_VERSION;
    case config::TlsVersion::tls1_1:
      return TLS1_1_VERSION;
    case config::TlsVersion::tls1_2:
      return TLS1_2_VERSION;
    case config::TlsVersion::tls1_3:
      return TLS1_3_VERSION;
  }
  return TLS1_3_VERSION;
}

std::string cause() {
  const std::string errors = take_errors();
  return errors.empty() ? "OpenSSL does not know it" : errors;
}

bool is_enabled_suite(const SSL_CTX* context, std::string_view name) {
  const STACK_OF(SSL_CIPHER)* ciphers = SSL_CTX_get_ciphers(context);
  for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); ++i) {
    const SSL_CIPHER* cipher = sk_SSL_CIPHER_value(ciphers, i);
    if (name == SSL_CIPHER_get_name(cipher) &&
        SSL_CIPHER_get_version(cipher) == std::string_view("TLSv1.3")) {
      return true;
    }
  }
  return false;
}

// OpenSSL passes over suites that it does not know and calls the rest a success, an empty one too.
void check_suites(const SSL_CTX* context, const config::Text& suites, Loading& loading) {
  std::string_view rest = suites.value;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string_view name = rest.substr(0, end);
    if (!is_enabled_suite(context, name)) {
      loading.error(suites.mark,
                    "ciphersuites: '" + std::string(name) + "' is no TLS 1.3 cipher suite of OpenSSL");
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

void apply_common(SSL_CTX* context) {
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  // The chain that is sent is the one in the file: none is put together from a store.
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

void apply_limits(const ProtocolLimits& limits, SSL_CTX* context, Loading& loading) {
  if (limits.min_version > limits.max_version) loading.error(limits.mark, "min_version is above max_version");
  SSL_CTX_set_min_proto_version(context, number_of(limits.min_version));
  SSL_CTX_set_max_proto_version(context, number_of(limits.max_version));
  const auto report = [&loading](const char* key, const config::Text& text) {
    loading.error(text.mark, std::string(key) + ": '" + text.value + "' cannot be used: " + cause());
  };
  if (const config::Text& text = limits.ciphers; !text.value.empty()) {
    if (SSL_CTX_set_cipher_list(context, text.value.c_str()) != 1) report("ciphers", text);
  }
  if (const config::Text& text = limits.ciphersuites; !text.value.empty()) {
    if (SSL_CTX_set_ciphersuites(context, text.value.c_str()) != 1) {
      report("ciphersuites", text);
    } else {
      check_suites(context, text, loading);
    }
  }
  if (const config::Text& text = limits.groups; !text.value.empty()) {
    if (SSL_CTX_set1_groups_list(context, text.value.c_str()) != 1) report("groups", text);
  }
  take_errors();
}

void allow_old_versions(const ProtocolLimits& limits, SSL_CTX* context, Loading& loading) {
  if (limits.min_version >= config::TlsVersion::tls1_2) return;
  if (limits.ciphers.value.find("@SECLEVEL") != std::string::npos) return;
  loading.warning(limits.mark, "min_version allows TLS 1.0 or 1.1: security level 0 is used for it");
  SSL_CTX_set_security_level(context, 0);
}

void check_alpn(const std::vector<config::Text>& alpn, Loading& loading) {
  std::size_t size = 0;
  for (const config::Text& protocol : alpn) {
    if (protocol.value.empty() || protocol.value.size() > 255) {
      loading.error(protocol.mark, "alpn: a protocol name has 1 to 255 bytes");
    }
    size += 1 + protocol.value.size();
  }
  if (size > 65535) loading.error(alpn.front().mark, "alpn: the list is longer than 65535 bytes");
}

std::string alpn_wire_form(const std::vector<config::Text>& alpn) {
  std::string wire;
  for (const config::Text& protocol : alpn) {
    wire += static_cast<char>(protocol.value.size());
    wire += protocol.value;
  }
  return wire;
}

}  // namespace tlsproxy::tls
