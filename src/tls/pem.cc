#include "tls/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <cstring>

#include "tls/errors.h"

namespace tlsproxy::tls {
namespace {

// OpenSSL wants "-----BEGIN" at the start of a line and would pass over a first block that an editor
// put a byte order mark before.
std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.substr(0, kMark.size()) == kMark ? text.substr(kMark.size()) : text;
}

// Reads objects until the text ends. `what` names them in errors.
template <class Ptr, class Read>
base::Result<std::vector<Ptr>> read_all(std::string_view pem, const std::string& what, Read read) {
  ERR_clear_error();
  const BioPtr bio = reader(without_byte_order_mark(pem));
  std::vector<Ptr> objects;
  while (auto* object = read(bio.get())) objects.emplace_back(object);
  const unsigned long end = ERR_peek_last_error();
  const bool at_end = ERR_GET_LIB(end) == ERR_LIB_PEM && ERR_GET_REASON(end) == PEM_R_NO_START_LINE;
  const std::string cause = take_errors();
  if (!at_end) {
    return base::failure(what + " number " + std::to_string(objects.size() + 1) +
                         " in it is malformed: " + cause);
  }
  if (objects.empty()) return base::failure("there is no " + what + " in it (PEM is expected)");
  return objects;
}

struct Passphrase {
  const std::string* text = nullptr;
  bool asked_for = false;
};

// The callbacks OpenSSL calls for a passphrase; without one it would prompt on the terminal.
int refuse(char*, int, int, void*) {
  return -1;
}

int answer(char* buffer, int size, int, void* argument) {
  auto* passphrase = static_cast<Passphrase*>(argument);
  passphrase->asked_for = true;
  if (passphrase->text == nullptr || passphrase->text->size() > static_cast<std::size_t>(size)) return -1;
  std::memcpy(buffer, passphrase->text->data(), passphrase->text->size());
  return static_cast<int>(passphrase->text->size());
}

KeyPtr try_passphrase(std::string_view pem, Passphrase& passphrase) {
  const BioPtr bio = reader(pem);
  return KeyPtr(PEM_read_bio_PrivateKey(bio.get(), nullptr, answer, &passphrase));
}

}  // namespace

base::Result<std::vector<X509Ptr>> read_certificates(std::string_view pem) {
  return read_all<X509Ptr>(pem, "certificate",
                           [](BIO* bio) { return PEM_read_bio_X509_AUX(bio, nullptr, refuse, nullptr); });
}

base::Result<std::vector<CrlPtr>> read_crls(std::string_view pem) {
  return read_all<CrlPtr>(pem, "revocation list",
                          [](BIO* bio) { return PEM_read_bio_X509_CRL(bio, nullptr, refuse, nullptr); });
}

base::Result<KeyPtr> read_private_key(std::string_view pem, const std::vector<std::string>& passphrases) {
  pem = without_byte_order_mark(pem);
  if (pem.find("PRIVATE KEY-----") == std::string_view::npos) {
    return base::failure("there is no private key in it (PEM is expected)");
  }
  ERR_clear_error();
  Passphrase none;
  KeyPtr key = try_passphrase(pem, none);
  for (const std::string& text : passphrases) {
    if (key || !none.asked_for) break;
    ERR_clear_error();
    Passphrase passphrase{&text};
    key = try_passphrase(pem, passphrase);
  }
  const std::string cause = take_errors();
  if (key) return key;
  if (!none.asked_for) return base::failure("its private key is malformed: " + cause);
  if (passphrases.empty()) return base::failure("it is encrypted and needs a password_file");
  return base::failure("it is encrypted and no passphrase fits");
}

std::vector<std::string> read_passphrases(std::string_view text) {
  std::vector<std::string> passphrases;
  text = without_byte_order_mark(text);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty()) passphrases.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return passphrases;
}

}  // namespace tlsproxy::tls
