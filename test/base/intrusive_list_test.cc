#include "base/intrusive_list.h"

#include <memory>
#include <string>
#include <vector>

#include "support/catch.h"

using tlsproxy::base::Hook;
using tlsproxy::base::IntrusiveList;

namespace {

struct Waiting;
struct Alive;

struct Element : Hook<Waiting>, Hook<Alive> {
  explicit Element(std::string the_name) : name(std::move(the_name)) {}
  std::string name;
};

using WaitingList = IntrusiveList<Element, Waiting>;
using AliveList = IntrusiveList<Element, Alive>;

template <class List>
std::string names(List& list) {
  std::string all;
  list.for_each([&all](Element& element) { all += element.name; });
  return all;
}

}  // namespace

TEST_CASE("elements leave a list in the order they came", "[intrusive_list]") {
  Element a("a");
  Element b("b");
  Element c("c");
  WaitingList list;
  CHECK(list.empty());
  list.push_back(a);
  list.push_back(b);
  list.push_back(c);
  CHECK(&list.front() == &a);
  CHECK(list.pop_front().name == "a");
  list.push_back(a);
  CHECK(names(list) == "bca");
}

TEST_CASE("an element leaves its list from any place, and may do so twice", "[intrusive_list]") {
  Element a("a");
  Element b("b");
  Element c("c");
  WaitingList list;
  for (Element* element : {&a, &b, &c}) list.push_back(*element);
  b.Hook<Waiting>::unlink();
  b.Hook<Waiting>::unlink();
  CHECK_FALSE(b.Hook<Waiting>::linked());
  CHECK(names(list) == "ac");
  c.Hook<Waiting>::unlink();
  a.Hook<Waiting>::unlink();
  CHECK(list.empty());
}

TEST_CASE("a destroyed element is in no list any more", "[intrusive_list]") {
  Element a("a");
  auto b = std::make_unique<Element>("b");
  Element c("c");
  WaitingList list;
  AliveList others;
  for (Element* element : {&a, b.get(), &c}) list.push_back(*element);
  others.push_back(*b);
  b.reset();
  CHECK(names(list) == "ac");
  CHECK(others.empty());
}

TEST_CASE("an element is in two lists at once by two hooks", "[intrusive_list]") {
  Element a("a");
  Element b("b");
  WaitingList waiting;
  AliveList alive;
  waiting.push_back(a);
  waiting.push_back(b);
  alive.push_back(b);
  alive.push_back(a);
  CHECK(names(waiting) == "ab");
  CHECK(names(alive) == "ba");
  a.Hook<Waiting>::unlink();
  CHECK(names(waiting) == "b");
  CHECK(names(alive) == "ba");
}

TEST_CASE("an element may leave while it is visited", "[intrusive_list]") {
  Element a("a");
  Element b("b");
  Element c("c");
  WaitingList list;
  for (Element* element : {&a, &b, &c}) list.push_back(*element);
  std::string visited;
  list.for_each([&visited](Element& element) {
    visited += element.name;
    if (element.name != "b") element.Hook<Waiting>::unlink();
  });
  CHECK(visited == "abc");
  CHECK(names(list) == "b");
}

TEST_CASE("a list that goes lets its elements go, and they can join another", "[intrusive_list]") {
  Element a("a");
  Element b("b");
  {
    WaitingList list;
    list.push_back(a);
    list.push_back(b);
  }
  CHECK_FALSE(a.Hook<Waiting>::linked());
  WaitingList next;
  next.push_back(b);
  next.push_back(a);
  CHECK(names(next) == "ba");
}
