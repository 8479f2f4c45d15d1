// IntrusiveList: a doubly linked list whose links live inside its elements.
//
// Membership costs no allocation, an element unlinks itself in constant time without knowing its
// list, and a destroyed element leaves its list by itself. The list owns nothing. An element type
// that must be in several lists at once derives from one Hook per list, told apart by a tag type.
#pragma once

#include <cstddef>

#include "base/check.h"

namespace tlsproxy::base {

template <class Tag>
class Hook {
 public:
  Hook() = default;
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;
  ~Hook() { unlink(); }

  [[nodiscard]] bool linked() const { return next_ != nullptr; }

  // Leaves whatever list it is in; no effect when in none.
  void unlink() {
    if (next_ == nullptr) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = nullptr;
  }

 private:
  template <class, class>
  friend class IntrusiveList;

  void insert_before(Hook& position) {
    TLSPROXY_DCHECK(!linked(), "an element is in one list of a kind at a time");
    prev_ = position.prev_;
    next_ = &position;
    prev_->next_ = this;
    position.prev_ = this;
  }

  Hook* prev_ = nullptr;
  Hook* next_ = nullptr;
};

template <class T, class Tag>
class IntrusiveList {
 public:
  IntrusiveList() { root_.prev_ = root_.next_ = &root_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;
  ~IntrusiveList() {
    while (!empty()) pop_front();
    root_.prev_ = root_.next_ = nullptr;
  }

  [[nodiscard]] bool empty() const { return root_.next_ == &root_; }

  void push_back(T& element) { hook(element).insert_before(root_); }

  T& front() {
    TLSPROXY_DCHECK(!empty(), "front of a list that has one");
    return *element(root_.next_);
  }

  T& pop_front() {
    T& first = front();
    hook(first).unlink();
    return first;
  }

  // Calls f for each element; f may unlink the element it is given, and no other.
  template <class F>
  void for_each(F f) {
    for (Hook<Tag>* at = root_.next_; at != &root_;) {
      Hook<Tag>* next = at->next_;
      f(*element(at));
      at = next;
    }
  }

 private:
  static Hook<Tag>& hook(T& element) { return element; }
  static T* element(Hook<Tag>* hook) { return static_cast<T*>(hook); }

  Hook<Tag> root_;
};

}  // namespace tlsproxy::base
