// defer(f): runs f when the returned guard leaves its scope.
#pragma once

#include <utility>

namespace tlsproxy::base {

template <class F>
class [[nodiscard]] Deferred {
 public:
  explicit Deferred(F f) : f_(std::move(f)) {}
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  ~Deferred() { f_(); }

 private:
  F f_;
};

template <class F>
Deferred<F> defer(F f) {
  return Deferred<F>(std::move(f));
}

}  // namespace tlsproxy::base
