#include "tls/identity.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/strings.h"
#include "tls/context.h"
#include "tls/errors.h"
#include "tls/pem.h"

namespace tlsproxy::tls {
namespace {

constexpr std::string_view kSelfSigned = "self-signed:";

struct Material {
  std::string chain;
  std::string key;
  std::vector<std::string> passphrases;
};

config::Mark place(const config::Text& text, const config::Certificate& source) {
  return text.mark.line != 0 ? text.mark : source.mark;
}

std::optional<std::string> read_file(const config::Text& path, const config::Certificate& source,
                                     Loading& loading) {
  return loading.read({path.value, place(path, source)});
}

// Reads every file even when one is missing, so that all are told at once.
std::optional<Material> read_material(const config::Certificate& source, const std::string& name,
                                      Loading& loading) {
  if (source.self_signed) {
    auto made = loading.generated(
        std::string(kSelfSigned) + name,
        [](const std::string& entry) { return make_self_signed(entry.substr(kSelfSigned.size())); },
        source.mark);
    if (!made) return std::nullopt;
    return Material{*made, *made, {}};
  }
  const bool one_file = source.key.value.empty() || source.key.value == source.chain.value;
  auto chain = read_file(source.chain, source, loading);
  auto key = one_file ? chain : read_file(source.key, source, loading);
  std::optional<std::string> passwords{""};
  if (!source.password_file.value.empty()) passwords = read_file(source.password_file, source, loading);
  if (!chain || !key || !passwords) return std::nullopt;
  return Material{std::move(*chain), std::move(*key), read_passphrases(*passwords)};
}

// A host name, or "*." and one; by its characters only, and in lower case already.
bool is_usable_name(std::string_view name) {
  if (name.substr(0, 2) == "*.") name.remove_prefix(2);
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

void add_name(const ASN1_STRING* value, std::vector<std::string>& names) {
  unsigned char* utf8 = nullptr;
  const int size = ASN1_STRING_to_UTF8(&utf8, value);
  if (size < 0) return;
  std::string name = base::to_lower({reinterpret_cast<const char*>(utf8), static_cast<std::size_t>(size)});
  OPENSSL_free(utf8);
  if (!name.empty() && name.back() == '.') name.pop_back();
  if (is_usable_name(name) && std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(std::move(name));
  }
}

// Whether one of the certificates behind the leaf is the one the key belongs to: a common slip.
bool belongs_to_later(const EVP_PKEY* key, const std::vector<X509Ptr>& certificates) {
  const bool found = std::any_of(
      certificates.begin() + 1, certificates.end(),
      [key](const X509Ptr& certificate) { return X509_check_private_key(certificate.get(), key) == 1; });
  take_errors();
  return found;
}

// A peer that must build a path from such a chain may fail to.
void warn_of_chain(const std::vector<X509Ptr>& certificates, const Identity& identity, Loading& loading) {
  for (std::size_t i = 1; i < certificates.size(); ++i) {
    const X509* certificate = certificates[i].get();
    const std::string subject = to_text(X509_get_subject_name(certificate));
    if (const std::string why = outside_validity(certificate, loading.checked_at()); !why.empty()) {
      loading.warning(identity.mark(), identity.shown() + ": its intermediate (" + subject + ") " + why);
    }
    if (X509_NAME_cmp(X509_get_issuer_name(certificates[i - 1].get()), X509_get_subject_name(certificate)) !=
        0) {
      loading.warning(identity.mark(), identity.shown() + ": its intermediate (" + subject +
                                           ") did not issue the certificate before it");
    }
  }
}

}  // namespace

std::vector<std::string> names_of(const X509* certificate) {
  std::vector<std::string> names;
  bool has_dns_name = false;
  const GeneralNamesPtr alternatives(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; i < sk_GENERAL_NAME_num(alternatives.get()); ++i) {
    const GENERAL_NAME* alternative = sk_GENERAL_NAME_value(alternatives.get(), i);
    if (alternative->type != GEN_DNS) continue;
    has_dns_name = true;
    add_name(alternative->d.dNSName, names);
  }
  take_errors();
  if (has_dns_name) return names;
  const X509_NAME* subject = X509_get_subject_name(certificate);
  int last = -1;
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) last = at;
  if (last >= 0) add_name(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, last)), names);
  take_errors();
  return names;
}

std::unique_ptr<Identity> Identity::load(const config::Certificate& source, const std::string& name,
                                         Loading& loading) {
  const auto material = read_material(source, name, loading);
  if (!material) return nullptr;
  const std::string shown =
      source.self_signed ? "self-signed certificate" : "certificate '" + source.chain.value + "'";
  const bool one_file = source.self_signed || source.key.value.empty();
  const config::Text& key_file = one_file ? source.chain : source.key;

  auto certificates = read_certificates(material->chain);
  if (!certificates) loading.error(place(source.chain, source), shown + ": " + certificates.error().message);
  auto key = read_private_key(material->key, material->passphrases);
  if (!key) {
    std::string message = "key '" + key_file.value + "': " + key.error().message;
    if (!material->passphrases.empty()) message += " (password_file '" + source.password_file.value + "')";
    loading.error(place(key_file, source), message);
  }
  if (!certificates || !key) return nullptr;

  std::unique_ptr<Identity> identity(new Identity);
  identity->shown_ = shown;
  identity->mark_ = place(source.chain, source);
  bool usable = true;
  const X509* leaf = certificates->front().get();
  if (X509_check_private_key(leaf, key->get()) != 1) {
    take_errors();
    std::string message = "key '" + key_file.value + "' does not match the first certificate of '" +
                          source.chain.value + "' (" + to_text(X509_get_subject_name(leaf)) + ")";
    if (belongs_to_later(key->get(), *certificates))
      message += "; a later one in the file fits and must come first";
    loading.error(place(key_file, source), message);
    usable = false;
  }
  if (const std::string why = outside_validity(leaf, loading.checked_at()); !why.empty()) {
    loading.error(identity->mark_, shown + " (" + to_text(X509_get_subject_name(leaf)) + ") " + why);
    usable = false;
  }
  if (!usable) return nullptr;

  identity->names_ = names_of(leaf);
  identity->key_ = std::move(*key);
  warn_of_chain(*certificates, *identity, loading);
  identity->chain_.reset(sk_X509_new_null());
  for (std::size_t i = 1; i < certificates->size(); ++i) {
    sk_X509_push(identity->chain_.get(), (*certificates)[i].release());
  }
  identity->leaf_ = std::move(certificates->front());
  return identity;
}

bool Identity::install(SSL_CTX* context, Loading& loading) const {
  if (SSL_CTX_use_cert_and_key(context, leaf_.get(), key_.get(), chain_.get(), 0) == 1) return true;
  loading.error(
      mark_, shown_ + " (" + to_text(X509_get_subject_name(leaf_.get())) + ") is refused: " + take_errors());
  return false;
}

std::string Identity::fingerprint() const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  X509_digest(leaf_.get(), EVP_sha256(), digest.data(), &size);
  return {digest.begin(), digest.begin() + size};
}

}  // namespace tlsproxy::tls
