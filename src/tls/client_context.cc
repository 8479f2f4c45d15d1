// The other half of tls/context.h: TLS towards backends.
#include <cstdlib>

#include "base/check.h"
#include "tls/context.h"
#include "tls/identity.h"
#include "tls/loading.h"
#include "tls/provider.h"
#include "tls/settings.h"
#include "tls/trust.h"

namespace tlsproxy::tls {
namespace {

std::string system_bundle() {
  const char* named = std::getenv("SSL_CERT_FILE");
  return named != nullptr && *named != '\0' ? named : "/etc/ssl/certs/ca-certificates.crt";
}

std::string without_last_dot(std::string name) {
  if (!name.empty() && name.back() == '.') name.pop_back();
  return name;
}

std::string name_of(const config::ClientTls& policy, const config::Server& server) {
  if (!policy.server_name.value.empty()) return without_last_dot(policy.server_name.value);
  if (const auto* named = std::get_if<config::HostPort>(&server.at)) return without_last_dot(named->host);
  const auto& address = std::get<os::SocketAddress>(server.at);
  return address.is_ip() ? address.host() : std::string();
}

void verify_servers(const config::Backend& backend, config::FileSource& files, SSL_CTX* context,
                    Loading& loading) {
  const config::ClientTls& policy = *backend.tls;
  if (!policy.verify) {
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    loading.warning(
        policy.mark,
        "certificates of its servers are not verified: anyone in between can read and change everything");
    return;
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  for (const config::Server& server : backend.servers) {
    if (!name_of(policy, server).empty()) continue;
    loading.error(server.text.mark,
                  "server '" + server.text.value + "' has no name to verify: tls needs a server_name");
  }
  config::Text bundle = policy.ca;
  if (bundle.value.empty()) {
    bundle = {system_bundle(), {}};
    if (const auto content = files.read(bundle.value); !content) {
      loading.error(policy.mark, content.error().message + "; without the system's bundle tls needs a ca");
      return;
    }
  }
  if (const auto trust = Trust::load(bundle, policy.crl, loading)) trust->install(context, policy.depth);
}

}  // namespace

std::unique_ptr<ClientContext> ClientContext::make(const config::Backend& backend, config::FileSource& files,
                                                   config::Diagnostics& diagnostics) {
  TLSPROXY_CHECK(backend.tls.has_value(), "a client context belongs to a backend with TLS");
  const config::ClientTls& policy = *backend.tls;
  Loading loading("backend '" + backend.name + "'", policy.mark, files, diagnostics);
  SslCtxPtr context(SSL_CTX_new_ex(nullptr, own_algorithms(), TLS_client_method()));
  TLSPROXY_CHECK(context != nullptr, "there is memory for a TLS context");

  const ProtocolLimits limits = ProtocolLimits::of(policy, policy.mark);
  apply_common(context.get());
  apply_limits(limits, context.get(), loading);
  if (policy.certificate) {
    const auto identity = Identity::load(*policy.certificate, backend.name, loading);
    if (identity) identity->install(context.get(), loading);
  }
  allow_old_versions(limits, context.get(), loading);
  verify_servers(backend, files, context.get(), loading);
  check_alpn(policy.alpn, loading);
  if (!policy.alpn.empty()) {
    const std::string wire = alpn_wire_form(policy.alpn);
    SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(wire.data()),
                            static_cast<unsigned int>(wire.size()));
  }
  take_errors();
  if (loading.errors() != 0) return nullptr;

  auto made = std::make_unique<ClientContext>();
  made->context_ = std::move(context);
  made->policy_ = &policy;
  return made;
}

std::string ClientContext::expected_name(const config::Server& server) const {
  return name_of(*policy_, server);
}

}  // namespace tlsproxy::tls
