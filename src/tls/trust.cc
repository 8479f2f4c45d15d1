#include "tls/trust.h"

#include <algorithm>

#include "tls/errors.h"
#include "tls/pem.h"

namespace tlsproxy::tls {
namespace {

struct Crl {
  CrlPtr list;
  const config::Text* file;
  [[nodiscard]] const X509_NAME* issuer() const { return X509_CRL_get_issuer(list.get()); }
};

// Whether what is wrong only says that there is no valid revocation list for a certificate.
bool is_lack_of_crl(int error) {
  switch (error) {
    case X509_V_ERR_UNABLE_TO_GET_CRL:
    case X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER:
    case X509_V_ERR_CRL_SIGNATURE_FAILURE:
    case X509_V_ERR_CRL_NOT_YET_VALID:
    case X509_V_ERR_CRL_HAS_EXPIRED:
    case X509_V_ERR_DIFFERENT_CRL_SCOPE:
      return true;
    default:
      return false;
  }
}

// OpenSSL looks up the last certificate of the path too. For an intermediate that is an anchor this can
// never succeed (its CRL must be signed by an issuer that is not in the path), so that no client at all
// would get in; see the file head for why the anchor needs no lookup.
int excuse_anchor(int verified, X509_STORE_CTX* path) {
  if (verified == 1) return 1;
  const int depth = X509_STORE_CTX_get_error_depth(path);
  const bool is_anchor = depth + 1 == sk_X509_num(X509_STORE_CTX_get0_chain(path)) &&
                         X509_STORE_CTX_get_num_untrusted(path) <= depth;
  if (!is_anchor || !is_lack_of_crl(X509_STORE_CTX_get_error(path))) return 0;
  X509_STORE_CTX_set_error(path, X509_V_OK);
  return 1;
}

std::vector<Crl> load_crls(const std::vector<config::Text>& files, std::string& content_of_all,
                           Loading& loading) {
  std::vector<Crl> crls;
  for (const config::Text& file : files) {
    const auto content = loading.read(file);
    if (!content) continue;
    content_of_all += sha256(*content);
    auto lists = read_crls(*content);
    if (!lists) {
      loading.error(file.mark, "crl '" + file.value + "': " + lists.error().message);
      continue;
    }
    for (CrlPtr& list : *lists) crls.push_back({std::move(list), &file});
  }
  return crls;
}

std::string shown(const Crl& crl) {
  return "crl '" + crl.file->value + "' of " + to_text(crl.issuer());
}

void check_validity(const Crl& crl, Loading& loading) {
  std::time_t now = loading.checked_at();
  const ASN1_TIME* from = X509_CRL_get0_lastUpdate(crl.list.get());
  const ASN1_TIME* until = X509_CRL_get0_nextUpdate(crl.list.get());
  const char* consequence = ": every peer it covers is rejected";
  if (X509_cmp_time(from, &now) >= 0) {
    loading.warning(crl.file->mark, shown(crl) + " is not valid before " + to_text(from) + consequence);
  }
  if (until != nullptr && X509_cmp_time(until, &now) <= 0) {
    loading.warning(crl.file->mark, shown(crl) + " expired on " + to_text(until) + consequence);
  }
}

// CAs of one name may be several (a key that was renewed): one of them must have signed it.
void check_signature(const Crl& crl, const std::vector<X509Ptr>& anchors, Loading& loading) {
  bool known = false;
  for (const X509Ptr& anchor : anchors) {
    if (X509_NAME_cmp(X509_get_subject_name(anchor.get()), crl.issuer()) != 0) continue;
    known = true;
    if (X509_CRL_verify(crl.list.get(), X509_get0_pubkey(anchor.get())) == 1) return;
  }
  const std::string cause = take_errors();
  if (known) loading.error(crl.file->mark, shown(crl) + " is not signed by that CA: " + cause);
}

const Crl* revoking(const std::vector<Crl>& crls, X509* anchor) {
  for (const Crl& crl : crls) {
    X509_REVOKED* entry = nullptr;
    if (X509_NAME_cmp(X509_get_issuer_name(anchor), crl.issuer()) == 0 &&
        X509_CRL_get0_by_cert(crl.list.get(), &entry, anchor) == 1) {
      return &crl;
    }
  }
  return nullptr;
}

void check_anchor(const config::Text& ca, X509* anchor, const std::vector<Crl>& crls, Loading& loading) {
  const X509_NAME* name = X509_get_subject_name(anchor);
  const std::string message = "ca '" + ca.value + "': " + to_text(name) + " ";
  const std::string consequence = ": every peer with a certificate issued by it is rejected";
  if (const std::string why = outside_validity(anchor, loading.checked_at()); !why.empty()) {
    loading.warning(ca.mark, message + why + consequence);
  }
  if (crls.empty() || X509_check_ca(anchor) == 0) return;
  const bool has_crl = std::any_of(crls.begin(), crls.end(),
                                   [name](const Crl& crl) { return X509_NAME_cmp(crl.issuer(), name) == 0; });
  if (!has_crl) loading.warning(ca.mark, message + "has no crl among those given" + consequence);
}

}  // namespace

std::unique_ptr<Trust> Trust::load(const config::Text& ca, const std::vector<config::Text>& crl_files,
                                   Loading& loading) {
  const std::size_t errors_before = loading.errors();
  std::string content_of_all;
  std::vector<X509Ptr> anchors;
  if (const auto bundle = loading.read(ca)) {
    content_of_all = sha256(*bundle);
    auto certificates = read_certificates(*bundle);
    if (certificates) {
      anchors = std::move(*certificates);
    } else {
      loading.error(ca.mark, "ca '" + ca.value + "': " + certificates.error().message);
    }
  }
  const std::vector<Crl> crls = load_crls(crl_files, content_of_all, loading);
  for (const Crl& crl : crls) {
    check_validity(crl, loading);
    check_signature(crl, anchors, loading);
  }
  if (loading.errors() != errors_before) return nullptr;

  std::unique_ptr<Trust> trust(new Trust);
  trust->digest_ = sha256(content_of_all);
  trust->store_.reset(X509_STORE_new());
  trust->names_.reset(sk_X509_NAME_new_null());
  for (const X509Ptr& anchor : anchors) {
    if (const Crl* crl = revoking(crls, anchor.get())) {
      loading.warning(ca.mark, "ca '" + ca.value + "': " + to_text(X509_get_subject_name(anchor.get())) +
                                   " is revoked by " + shown(*crl) + " and not trusted");
      continue;
    }
    if (ca.mark.line != 0) check_anchor(ca, anchor.get(), crls, loading);
    X509_STORE_add_cert(trust->store_.get(), anchor.get());
    sk_X509_NAME_push(trust->names_.get(), X509_NAME_dup(X509_get_subject_name(anchor.get())));
  }
  for (const Crl& crl : crls) X509_STORE_add_crl(trust->store_.get(), crl.list.get());
  unsigned long flags = X509_V_FLAG_PARTIAL_CHAIN;
  if (!crls.empty()) flags |= X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL;
  X509_STORE_set_flags(trust->store_.get(), flags);
  X509_STORE_set_verify_cb(trust->store_.get(), excuse_anchor);
  take_errors();
  return trust;
}

void Trust::install(SSL_CTX* context, int depth) const {
  SSL_CTX_set1_verify_cert_store(context, store_.get());
  SSL_CTX_set_verify_depth(context, depth);
}

bool Trust::announce(SSL_CTX* context) const {
  // At most 2^16-1 bytes with the extensions beside it, each name with a length of two bytes (RFC 8446,
  // 4.2 and 4.2.4; RFC 5246, 7.4.4).
  constexpr std::size_t kLargestList = 60000;
  std::size_t size = 0;
  for (int i = 0; i < sk_X509_NAME_num(names_.get()); ++i) {
    size += 2 + static_cast<std::size_t>(
                    std::max(0, i2d_X509_NAME(sk_X509_NAME_value(names_.get(), i), nullptr)));
  }
  if (size > kLargestList) return false;
  SSL_CTX_set_client_CA_list(context, SSL_dup_CA_list(names_.get()));
  return true;
}

}  // namespace tlsproxy::tls
