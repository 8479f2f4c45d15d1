// FixedQueue: first in, first out, of at most a number of elements set once; never allocates after that.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace tlsproxy::load {

template <class T>
class FixedQueue {
 public:
  explicit FixedQueue(std::size_t capacity) : elements_(capacity) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const T& front() const { return elements_[head_]; }

  void push(T element) {
    TLSPROXY_CHECK(size_ < elements_.size(), "a slot is queued once");
    elements_[(head_ + size_) % elements_.size()] = element;
    size_ += 1;
  }

  T pop() {
    TLSPROXY_CHECK(size_ > 0, "an empty queue is not popped");
    const T element = elements_[head_];
    head_ = (head_ + 1) % elements_.size();
    size_ -= 1;
    return element;
  }

 private:
  std::vector<T> elements_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace tlsproxy::load
