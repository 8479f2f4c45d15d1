#include "tls/context.h"

#include <cstring>
#include <tuple>

#include "base/check.h"
#include "tls/certificate_groups.h"
#include "tls/identity.h"
#include "tls/loading.h"
#include "tls/provider.h"
#include "tls/settings.h"
#include "tls/transport.h"
#include "tls/trust.h"

namespace tlsproxy::tls {
namespace {

// Our order decides; a client whose every offer we lack is told so (RFC 7301, 3.2). OpenSSL calls this
// only for clients that sent the extension, and has checked its form.
int select_alpn(SSL*, const unsigned char** chosen, unsigned char* chosen_size, const unsigned char* offers,
                unsigned int offers_size, void* argument) {
  const auto* policy = static_cast<const config::TlsPolicy*>(argument);
  for (const config::Text& ours : policy->alpn) {
    for (unsigned int at = 0; at < offers_size && offers[at] < offers_size - at; at += 1U + offers[at]) {
      const unsigned char* offer = offers + at + 1;
      if (ours.value.size() != offers[at] || std::memcmp(ours.value.data(), offer, offers[at]) != 0) continue;
      *chosen = offer;
      *chosen_size = offers[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

int verify_mode(config::ClientAuthMode mode) {
  switch (mode) {
    case config::ClientAuthMode::none:
      return SSL_VERIFY_NONE;
    case config::ClientAuthMode::optional:
      return SSL_VERIFY_PEER;
    case config::ClientAuthMode::required:
      return SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  }
  return SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
}

// Each part behind its length, so that no two lists of parts give the same bytes.
void add_part(std::string& bytes, const std::string& part) {
  bytes += std::to_string(part.size()) + ":" + part;
}

std::string join(const std::vector<std::string>& names) {
  constexpr std::size_t kMostNames = 3;
  std::string line;
  for (std::size_t i = 0; i < names.size() && i < kMostNames; ++i) line += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMostNames) line += " and " + std::to_string(names.size() - kMostNames) + " more";
  return line;
}

}  // namespace

class ServerContexts::Builder {
 public:
  Builder(const config::Listener& listener, config::FileSource& files, config::Diagnostics& diagnostics)
      : listener_(listener),
        loading_("listener '" + listener.name + "'", listener.tls.mark, files, diagnostics) {}

  std::unique_ptr<ServerContexts> build() {
    auto contexts = std::make_unique<ServerContexts>();
    fill(contexts->default_policy_, listener_.tls.policy, {}, listener_.tls.mark);
    for (const config::HostPolicy& host : listener_.tls.hosts) {
      auto policy = std::make_unique<Policy>();
      fill(*policy, host.policy, host.sni, host.mark);
      for (const config::Text& name : host.sni) {
        if (!contexts->policy_by_name_.emplace(name.value, policy.get()).second) {
          loading_.error(name.mark, "two hosts have the name '" + name.value + "'");
        }
      }
      contexts->host_policies_.push_back(std::move(policy));
    }
    take_errors();
    return loading_.errors() == 0 ? std::move(contexts) : nullptr;
  }

 private:
  // What all contexts of one policy share.
  struct Common {
    const config::TlsPolicy& policy;
    const std::vector<config::Text>& names;
    ProtocolLimits limits;
    const Trust* trust;  // null: clients are not verified
  };

  void fill(Policy& into, const config::TlsPolicy& policy, const std::vector<config::Text>& names,
            config::Mark mark) {
    into.policy = &policy;
    check_alpn(policy.alpn, loading_);
    const Common common{policy, names, ProtocolLimits::of(policy, mark), trust_of(policy.client_auth)};

    std::vector<const Identity*> identities;
    for (const config::Certificate& certificate : policy.certificates) {
      if (const Identity* identity = identity_of(certificate)) identities.push_back(identity);
    }
    if (policy.certificates.empty()) loading_.error(mark, "tls needs at least one certificate");
    const CertificateGroups groups = group_by_name(identities);
    warn_of_unused(groups);

    // Without any usable certificate this one still tells what else is wrong with the policy.
    std::map<CertificateGroup, SSL_CTX*> made;
    const auto context_of = [&](const CertificateGroup& group) {
      SSL_CTX*& context = made[group];
      if (context == nullptr) {
        into.contexts.push_back(make_context(common, group));
        context = into.contexts.back().get();
      }
      return context;
    };
    into.fallback = context_of(groups.fallback);
    for (const auto& [name, group] : groups.by_name) into.by_name.emplace(name, context_of(group));
  }

  SslCtxPtr make_context(const Common& common, const CertificateGroup& group) {
    SslCtxPtr context(SSL_CTX_new_ex(nullptr, own_algorithms(), TLS_server_method()));
    TLSPROXY_CHECK(context != nullptr, "there is memory for a TLS context");
    apply_common(context.get());
    apply_limits(common.limits, context.get(), loading_);
    for (const Identity* identity : group) identity->install(context.get(), loading_);
    allow_old_versions(common.limits, context.get(), loading_);
    // One ticket is enough for a client that comes back; each costs a record and an encryption.
    SSL_CTX_set_num_tickets(context.get(), 1);
    Transport::watch_names(context.get());
    if (!common.policy.alpn.empty()) {
      // The callback reads only; its argument has no const in OpenSSL's declaration.
      SSL_CTX_set_alpn_select_cb(context.get(), select_alpn, const_cast<config::TlsPolicy*>(&common.policy));
    }
    const config::ClientAuth& client_auth = common.policy.client_auth;
    SSL_CTX_set_verify(context.get(), verify_mode(client_auth.mode), nullptr);
    if (common.trust != nullptr) {
      common.trust->install(context.get(), client_auth.depth);
      if (!common.trust->announce(context.get())) {
        loading_.warning(client_auth.ca.mark,
                         "ca '" + client_auth.ca.value + "': its names are too many to be told to clients");
      }
    }
    const std::string id = session_id_context(common, group);
    SSL_CTX_set_session_id_context(context.get(), reinterpret_cast<const unsigned char*>(id.data()),
                                   static_cast<unsigned int>(id.size()));
    return context;
  }

  [[nodiscard]] std::string session_id_context(const Common& common, const CertificateGroup& group) const {
    std::string bytes;
    add_part(bytes, listener_.name);
    add_part(bytes, std::to_string(common.names.size()));
    for (const config::Text& name : common.names) add_part(bytes, name.value);
    const config::ClientAuth& client_auth = common.policy.client_auth;
    add_part(bytes, std::to_string(static_cast<int>(client_auth.mode)));
    add_part(bytes, std::to_string(client_auth.depth));
    add_part(bytes, common.trust != nullptr ? common.trust->digest() : "");
    for (const Identity* identity : group) add_part(bytes, identity->fingerprint());
    return sha256(bytes);
  }

  void warn_of_unused(const CertificateGroups& groups) {
    for (const CertificateGroups::Shadow& shadow : groups.shadows) {
      loading_.warning(shadow.later->mark(), shadow.later->shown() + " is not used for " +
                                                 join(shadow.names) + ": " + shadow.first->shown() +
                                                 " comes first with the same type of key");
    }
    for (const Identity* identity : groups.unreachable) {
      loading_.warning(identity->mark(),
                       identity->shown() + " names no host and is not the first: it is not used");
    }
  }

  // Policies inherit certificates and CAs from the listener: each is loaded once.
  const Identity* identity_of(const config::Certificate& certificate) {
    const auto key = std::make_tuple(certificate.chain.value, certificate.key.value,
                                     certificate.password_file.value, certificate.self_signed);
    auto known = identities_.find(key);
    if (known == identities_.end()) {
      known = identities_.emplace(key, Identity::load(certificate, listener_.name, loading_)).first;
    }
    return known->second.get();
  }

  const Trust* trust_of(const config::ClientAuth& client_auth) {
    if (client_auth.mode == config::ClientAuthMode::none) return nullptr;
    if (client_auth.ca.value.empty()) {
      loading_.error(client_auth.mark, "client_auth needs a ca to verify clients by");
      return nullptr;
    }
    std::vector<std::string> key{client_auth.ca.value};
    for (const config::Text& file : client_auth.crl) key.push_back(file.value);
    auto known = trusts_.find(key);
    if (known == trusts_.end()) {
      known = trusts_.emplace(key, Trust::load(client_auth.ca, client_auth.crl, loading_)).first;
    }
    return known->second.get();
  }

  const config::Listener& listener_;
  Loading loading_;
  std::map<std::tuple<std::string, std::string, std::string, bool>, std::unique_ptr<Identity>> identities_;
  std::map<std::vector<std::string>, std::unique_ptr<Trust>> trusts_;
};

std::unique_ptr<ServerContexts> ServerContexts::make(const config::Listener& listener,
                                                     config::FileSource& files,
                                                     config::Diagnostics& diagnostics) {
  return Builder(listener, files, diagnostics).build();
}

ServerContexts::Choice ServerContexts::choose(std::string_view sni) const {
  const std::string wildcard = wildcard_for(sni);
  const Policy* policy = &default_policy_;
  if (const auto exact = policy_by_name_.find(sni); exact != policy_by_name_.end()) {
    policy = exact->second;
  } else if (const auto covering = policy_by_name_.find(wildcard); covering != policy_by_name_.end()) {
    policy = covering->second;
  }
  SSL_CTX* context = policy->fallback;
  if (const auto exact = policy->by_name.find(sni); exact != policy->by_name.end()) {
    context = exact->second;
  } else if (const auto covering = policy->by_name.find(wildcard); covering != policy->by_name.end()) {
    context = covering->second;
  }
  return {context, policy->policy};
}

}  // namespace tlsproxy::tls
