#include "tls/peer.h"

#include "os/address.h"
#include "tls/openssl.h"

namespace tlsproxy::tls {

std::string peer_subject(const SSL* ssl) {
  const X509* certificate = SSL_get0_peer_certificate(ssl);
  return certificate != nullptr ? to_text(X509_get_subject_name(certificate)) : std::string();
}

std::string verify_error(const SSL* ssl) {
  const long result = SSL_get_verify_result(ssl);
  return result == X509_V_OK ? std::string() : X509_verify_cert_error_string(result);
}

bool expect_name(SSL* ssl, const std::string& name) {
  if (name.empty()) return true;
  X509_VERIFY_PARAM* demands = SSL_get0_param(ssl);
  if (os::SocketAddress::from_ip(name, 0)) return X509_VERIFY_PARAM_set1_ip_asc(demands, name.c_str()) == 1;
  // OpenSSL would take a leading dot as "any host below".
  if (name.front() == '.') return false;
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  // The macro for this call casts constness away in the old style.
  return SSL_set1_host(ssl, name.c_str()) == 1 &&
         SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                  const_cast<char*>(name.c_str())) == 1;
}

}  // namespace tlsproxy::tls
