#include "tls/provider.h"

#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/proverr.h>
#include <openssl/provider.h>
#include <string.h>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tls/hkdf.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {
namespace {

constexpr const char* kName = "tlsproxy";
constexpr const char* kProperties = "provider=tlsproxy";
constexpr const char* kQuery = "?provider=tlsproxy";

int refuse(int reason) {
  ERR_raise(ERR_LIB_PROV, reason);
  return 0;
}

// --- TLS13-KDF (EVP_KDF-TLS13_KDF(7)) -----------------------------------------------------------

// What a derivation is made from, by whoever owns the bytes. Null data: not given.
struct KdfInput {
  std::optional<Hash> hash;
  int mode = EVP_KDF_HKDF_MODE_EXTRACT_AND_EXPAND;  // which this algorithm has not
  Bytes key;
  Bytes salt;
  Label label;
  Bytes data;
};

std::optional<Hash> hash_of(std::string_view name) {
  for (const char* known : {"SHA2-256", "SHA256", "SHA-256"}) {
    if (OPENSSL_strcasecmp(name.data(), known) == 0) return Hash::sha256;
  }
  for (const char* known : {"SHA2-384", "SHA384", "SHA-384"}) {
    if (OPENSSL_strcasecmp(name.data(), known) == 0) return Hash::sha384;
  }
  return std::nullopt;
}

bool read_hash(const OSSL_PARAM& parameter, std::optional<Hash>& hash) {
  const char* name = nullptr;
  if (OSSL_PARAM_get_utf8_string_ptr(&parameter, &name) != 1 || name == nullptr) return false;
  hash = hash_of(name);
  return hash.has_value();
}

bool read_mode(const OSSL_PARAM& parameter, int& mode) {
  if (parameter.data_type == OSSL_PARAM_UTF8_STRING) {
    const char* name = static_cast<const char*>(parameter.data);
    if (OPENSSL_strcasecmp(name, "EXTRACT_ONLY") == 0) {
      mode = EVP_KDF_HKDF_MODE_EXTRACT_ONLY;
    } else if (OPENSSL_strcasecmp(name, "EXPAND_ONLY") == 0) {
      mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    } else {
      return false;
    }
    return true;
  }
  return OSSL_PARAM_get_int(&parameter, &mode) == 1 &&
         (mode == EVP_KDF_HKDF_MODE_EXTRACT_ONLY || mode == EVP_KDF_HKDF_MODE_EXPAND_ONLY);
}

bool read_bytes(const OSSL_PARAM& parameter, Bytes& bytes) {
  static const unsigned char none = 0;
  const void* data = nullptr;
  std::size_t size = 0;
  if (OSSL_PARAM_get_octet_string_ptr(&parameter, &data, &size) != 1) return false;
  bytes = {data == nullptr ? &none : static_cast<const unsigned char*>(data), size};
  return true;
}

// Overwrites in `input` what `parameters` (null for none) say. What they do not know is not theirs.
int read_parameters(const OSSL_PARAM* parameters, KdfInput& input) {
  if (parameters == nullptr) return 1;
  for (const OSSL_PARAM* each = parameters; each->key != nullptr; ++each) {
    const std::string_view key = each->key;
    if (key == OSSL_KDF_PARAM_DIGEST) {
      if (!read_hash(*each, input.hash)) return refuse(PROV_R_INVALID_DIGEST);
    } else if (key == OSSL_KDF_PARAM_MODE) {
      if (!read_mode(*each, input.mode)) return refuse(PROV_R_INVALID_MODE);
    } else {
      Bytes* bytes = nullptr;
      if (key == OSSL_KDF_PARAM_KEY) bytes = &input.key;
      if (key == OSSL_KDF_PARAM_SALT) bytes = &input.salt;
      if (key == OSSL_KDF_PARAM_PREFIX) bytes = &input.label.prefix;
      if (key == OSSL_KDF_PARAM_LABEL) bytes = &input.label.name;
      if (key == OSSL_KDF_PARAM_DATA) bytes = &input.data;
      if (bytes != nullptr && !read_bytes(*each, *bytes)) return refuse(PROV_R_BAD_LENGTH);
    }
  }
  return 1;
}

thread_local TrafficSecrets* noted = nullptr;

void note(Bytes label, Bytes derived, TrafficSecrets& secrets) {
  const std::string_view name(reinterpret_cast<const char*>(label.data()), label.size());
  if (name == "c ap traffic") secrets.client = Secret(std::as_bytes(derived));
  if (name == "s ap traffic") secrets.server = Secret(std::as_bytes(derived));
}

int derive(const KdfInput& input, Room out) {
  if (!input.hash) return refuse(PROV_R_MISSING_MESSAGE_DIGEST);
  if (out.empty()) return refuse(PROV_R_INVALID_KEY_LENGTH);
  switch (input.mode) {
    case EVP_KDF_HKDF_MODE_EXTRACT_ONLY: {
      if (out.size() != size_of(*input.hash)) return refuse(PROV_R_WRONG_OUTPUT_BUFFER_SIZE);
      // "0" of RFC 8446, 7.1, where the schedule has no secret to take in.
      static const unsigned char zeros[kLargestHash] = {};
      const Bytes key = input.key.data() == nullptr ? Bytes(zeros, out.size()) : input.key;
      if (hkdf_next_secret(*input.hash, input.salt, input.label, key, out)) return 1;
      break;
    }
    case EVP_KDF_HKDF_MODE_EXPAND_ONLY:
      if (input.key.data() == nullptr) return refuse(PROV_R_MISSING_KEY);
      if (hkdf_expand_label(*input.hash, input.key, input.label, input.data, out)) {
        if (noted != nullptr) note(input.label.name, out, *noted);
        return 1;
      }
      break;
    default:
      return refuse(PROV_R_INVALID_MODE);
  }
  return refuse(PROV_R_LENGTH_TOO_LARGE);
}

// Keeps what was set for later derivations. libssl gives everything to the one derivation it makes, and
// that is read where it lies.
class Kdf {
 public:
  Kdf() = default;
  ~Kdf() { reset(); }
  Kdf(const Kdf& other) { keep(other.input_); }
  Kdf& operator=(const Kdf&) = delete;

  [[nodiscard]] const KdfInput& input() const { return input_; }

  void keep(const KdfInput& input) {
    input_.hash = input.hash;
    input_.mode = input.mode;
    keep(input.key, input_.key, key_);
    keep(input.salt, input_.salt, salt_);
    keep(input.label.prefix, input_.label.prefix, prefix_);
    keep(input.label.name, input_.label.name, name_);
    keep(input.data, input_.data, data_);
  }

  void reset() {
    for (auto* owned : {&key_, &salt_, &prefix_, &name_, &data_}) wipe(*owned);
    input_ = {};
  }

 private:
  using Owned = std::vector<unsigned char>;

  static void wipe(Owned& owned) {
    if (!owned.empty()) ::explicit_bzero(owned.data(), owned.size());
    owned.clear();
  }

  static void keep(Bytes given, Bytes& bytes, Owned& owned) {
    if (given.data() == bytes.data()) return;
    Owned copy;
    copy.reserve(given.size() + 1);  // so that what was given without bytes is not null
    copy.assign(given.begin(), given.end());
    wipe(owned);
    owned = std::move(copy);
    bytes = {owned.data(), owned.size()};
  }

  KdfInput input_;
  Owned key_;
  Owned salt_;
  Owned prefix_;
  Owned name_;
  Owned data_;
};

// What OpenSSL calls, with C's types. No exception may leave.
void* kdf_new(void*) {
  return new (std::nothrow) Kdf;
}

void kdf_free(void* kdf) {
  delete static_cast<Kdf*>(kdf);
}

void* kdf_copy(void* kdf) {
  try {
    return new Kdf(*static_cast<const Kdf*>(kdf));
  } catch (const std::bad_alloc&) {
    refuse(ERR_R_MALLOC_FAILURE);
    return nullptr;
  }
}

void kdf_reset(void* kdf) {
  static_cast<Kdf*>(kdf)->reset();
}

int kdf_derive(void* kdf, unsigned char* out, std::size_t size, const OSSL_PARAM parameters[]) {
  KdfInput input = static_cast<const Kdf*>(kdf)->input();
  return read_parameters(parameters, input) == 1 ? derive(input, {out, size}) : 0;
}

int kdf_set(void* kdf, const OSSL_PARAM parameters[]) {
  auto* me = static_cast<Kdf*>(kdf);
  KdfInput input = me->input();
  if (read_parameters(parameters, input) != 1) return 0;
  try {
    me->keep(input);
    return 1;
  } catch (const std::bad_alloc&) {
    return refuse(ERR_R_MALLOC_FAILURE);
  }
}

int kdf_get(void* kdf, OSSL_PARAM parameters[]) {
  OSSL_PARAM* size = OSSL_PARAM_locate(parameters, OSSL_KDF_PARAM_SIZE);
  if (size == nullptr) return 1;
  const KdfInput& input = static_cast<const Kdf*>(kdf)->input();
  if (input.mode != EVP_KDF_HKDF_MODE_EXTRACT_ONLY) return OSSL_PARAM_set_size_t(size, SIZE_MAX);
  if (!input.hash) return refuse(PROV_R_MISSING_MESSAGE_DIGEST);
  return OSSL_PARAM_set_size_t(size, size_of(*input.hash));
}

const OSSL_PARAM* kdf_settable(void*, void*) {
  static const OSSL_PARAM settable[] = {OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_DIGEST, nullptr, 0),
                                        OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_MODE, nullptr, 0),
                                        OSSL_PARAM_int(OSSL_KDF_PARAM_MODE, nullptr),
                                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_KEY, nullptr, 0),
                                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_SALT, nullptr, 0),
                                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_PREFIX, nullptr, 0),
                                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_LABEL, nullptr, 0),
                                        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_DATA, nullptr, 0),
                                        OSSL_PARAM_END};
  return settable;
}

const OSSL_PARAM* kdf_gettable(void*, void*) {
  static const OSSL_PARAM gettable[] = {OSSL_PARAM_size_t(OSSL_KDF_PARAM_SIZE, nullptr), OSSL_PARAM_END};
  return gettable;
}

// --- the provider --------------------------------------------------------------------------------

// Gives a function the one type that dispatch tables have, once its own is the one OpenSSL will call.
template <class Wanted>
constexpr auto entry(int id, Wanted* function) {
  return OSSL_DISPATCH{id, reinterpret_cast<void (*)()>(function)};
}

const OSSL_DISPATCH* kdf_functions() {
  static const OSSL_DISPATCH functions[] = {
      entry<OSSL_FUNC_kdf_newctx_fn>(OSSL_FUNC_KDF_NEWCTX, kdf_new),
      entry<OSSL_FUNC_kdf_freectx_fn>(OSSL_FUNC_KDF_FREECTX, kdf_free),
      entry<OSSL_FUNC_kdf_dupctx_fn>(OSSL_FUNC_KDF_DUPCTX, kdf_copy),
      entry<OSSL_FUNC_kdf_reset_fn>(OSSL_FUNC_KDF_RESET, kdf_reset),
      entry<OSSL_FUNC_kdf_derive_fn>(OSSL_FUNC_KDF_DERIVE, kdf_derive),
      entry<OSSL_FUNC_kdf_set_ctx_params_fn>(OSSL_FUNC_KDF_SET_CTX_PARAMS, kdf_set),
      entry<OSSL_FUNC_kdf_get_ctx_params_fn>(OSSL_FUNC_KDF_GET_CTX_PARAMS, kdf_get),
      entry<OSSL_FUNC_kdf_settable_ctx_params_fn>(OSSL_FUNC_KDF_SETTABLE_CTX_PARAMS, kdf_settable),
      entry<OSSL_FUNC_kdf_gettable_ctx_params_fn>(OSSL_FUNC_KDF_GETTABLE_CTX_PARAMS, kdf_gettable),
      {0, nullptr}};
  return functions;
}

const OSSL_ALGORITHM* query(void*, int operation, int* no_cache) {
  static const OSSL_ALGORITHM derivations[] = {
      {OSSL_KDF_NAME_TLS1_3_KDF, kProperties, kdf_functions(), "TLS 1.3 key schedule"},
      {nullptr, nullptr, nullptr, nullptr}};
  *no_cache = 0;
  return operation == OSSL_OP_KDF ? derivations : nullptr;
}

int start(const OSSL_CORE_HANDLE*, const OSSL_DISPATCH*, const OSSL_DISPATCH** functions, void** context) {
  static const OSSL_DISPATCH offered[] = {
      entry<OSSL_FUNC_provider_query_operation_fn>(OSSL_FUNC_PROVIDER_QUERY_OPERATION, query), {0, nullptr}};
  *functions = offered;
  *context = nullptr;
  return 1;
}

}  // namespace

NoteTrafficSecrets::NoteTrafficSecrets(TrafficSecrets& secrets) {
  noted = &secrets;
}

NoteTrafficSecrets::~NoteTrafficSecrets() {
  noted = nullptr;
}

const char* own_algorithms() {
  using Loaded = std::unique_ptr<OSSL_PROVIDER, FreedBy<OSSL_PROVIDER_unload>>;
  // With the fallbacks retained: what else is loaded stays as OpenSSL's configuration has it.
  static const Loaded loaded(OSSL_PROVIDER_add_builtin(nullptr, kName, start) == 1
                                 ? OSSL_PROVIDER_try_load(nullptr, kName, 1)
                                 : nullptr);
  return kQuery;
}

}  // namespace tlsproxy::tls
