// The files and structs that a listener's or backend's TLS is made from, for tests of tls/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/diagnostics.h"
#include "config/files.h"
#include "config/model.h"
#include "support/certificates.h"
#include "tls/context.h"

namespace tlsproxy::test {

// Every text gets a place of its own (the line counts up), so that tests see which one is blamed.
class TlsFiles {
 public:
  config::Text text(std::string value) { return {std::move(value), {++line_, 7}}; }

  config::Text file(const std::string& name, std::string content) {
    files_[name] = std::move(content);
    return text(name);
  }

  // NAME.pem and NAME.key, the chain with the intermediates given.
  config::Certificate certificate(const std::string& name, const Issued& issued,
                                  const std::vector<const Issued*>& intermediates = {}) {
    std::string chain = issued.pem();
    for (const Issued* intermediate : intermediates) chain += intermediate->pem();
    config::Certificate made;
    made.chain = file(name + ".pem", chain);
    made.key = file(name + ".key", issued.key_pem());
    made.mark = made.chain.mark;
    return made;
  }

  // Contexts from what was put in so far; the messages of earlier calls are gone.
  std::unique_ptr<tls::ServerContexts> make(const config::Listener& listener) {
    diagnostics_ = config::Diagnostics("test.yaml");
    config::RecordedFiles source(files_);
    return tls::ServerContexts::make(listener, source, diagnostics_);
  }
  std::unique_ptr<tls::ClientContext> make(const config::Backend& backend) {
    diagnostics_ = config::Diagnostics("test.yaml");
    config::RecordedFiles source(files_);
    return tls::ClientContext::make(backend, source, diagnostics_);
  }

  [[nodiscard]] const config::Diagnostics& diagnostics() const { return diagnostics_; }

  // Messages of one severity, in the order of their reporting.
  [[nodiscard]] std::vector<std::string> errors() const {
    return messages(config::Diagnostics::Severity::error);
  }
  [[nodiscard]] std::vector<std::string> warnings() const {
    return messages(config::Diagnostics::Severity::warning);
  }

  config::FileMap& files() { return files_; }

 private:
  [[nodiscard]] std::vector<std::string> messages(config::Diagnostics::Severity severity) const {
    std::vector<std::string> found;
    for (const auto& entry : diagnostics_.entries()) {
      if (entry.severity == severity) found.push_back(entry.message);
    }
    return found;
  }

  config::FileMap files_;
  config::Diagnostics diagnostics_{"test.yaml"};
  int line_ = 10;
};

// A listener "web" that terminates TLS with these certificates.
inline config::Listener listener_with(std::vector<config::Certificate> certificates) {
  config::Listener listener;
  listener.name = "web";
  listener.mark = {1, 3};
  listener.tls_mode = config::TlsMode::terminate;
  listener.tls.mark = {2, 3};
  listener.tls.policy.certificates = std::move(certificates);
  return listener;
}

}  // namespace tlsproxy::test
