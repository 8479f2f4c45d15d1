// Fields: how one description of a struct's keys reads it, writes it and lists its keys.
//
// A description is a struct with
//   Value                      the model's struct
//   kNoun                      what messages call it
//   fields(visitor, value)     visitor("key", member, Kind{}) for each key, in the order of writing
//   check(reader, value)       (where needed) what must hold among the keys of one map
// and the three visitors below run over the same fields(). A Kind reads one Item into a member and
// writes the member as a Node, or as nothing when there is nothing to say. Reading goes on after an
// error: each key stands for itself, and a wrong one hides no other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/diagnostics.h"
#include "config/model.h"
#include "config/yaml_tree.h"

namespace tlsproxy::config {

// What all of one reading shares.
struct Reading {
  Diagnostics& diagnostics;
  std::size_t binds = 0;   // made so far: port ranges make many of one line
  std::size_t copied = 0;  // values inherited so far by entries of hosts
};

// A value of the tree on its way into the model, with the key that messages name.
struct Item {
  const Node& node;
  std::string_view key;
  Reading& reading;

  void error(const std::string& message) const { error_at(node.mark, message); }
  void error_at(Mark mark, const std::string& message) const;
  void warning(const std::string& message) const;

  // The text of a scalar that is there and not empty, or null after reporting. `wanted` is what the
  // message says it should be ("a duration").
  [[nodiscard]] const std::string* scalar(std::string_view wanted) const;
  // The same, and it must not be quoted: numbers and booleans are not texts.
  [[nodiscard]] const std::string* bare_scalar(std::string_view wanted) const;
  // Reports and returns false when the node is of another kind.
  [[nodiscard]] bool is(Node::Kind kind, std::string_view wanted) const;

  [[nodiscard]] Item with(const Node& other) const { return Item{other, key, reading}; }
};

// --- visitors --------------------------------------------------------------------------------------

class FieldReader {
 public:
  // `item` must be a map.
  FieldReader(const Item& item, std::string_view noun) : item_(item), noun_(noun) {}

  template <class T, class Kind>
  void operator()(std::string_view key, T& member, Kind) {
    known_.push_back(key);
    if (const Entry* entry = item_.node.find(key)) Kind::read(Item{entry->value, key, item_.reading}, member);
  }

  [[nodiscard]] bool has(std::string_view key) const { return item_.node.find(key) != nullptr; }
  // Whether any of them is there: the first that is.
  [[nodiscard]] const Entry* first_of(std::initializer_list<std::string_view> keys) const;
  [[nodiscard]] Mark mark() const { return item_.node.mark; }
  // Of the value of that key; of the map when the key is missing.
  [[nodiscard]] Mark mark_of(std::string_view key) const;

  void error(Mark mark, std::string message) { item_.reading.diagnostics.error(mark, std::move(message)); }
  void warning(Mark mark, std::string message) {
    item_.reading.diagnostics.warning(mark, std::move(message));
  }
  void require(std::string_view key);

  // Reports every key that no field has asked for.
  void report_unknown();

 private:
  Item item_;
  std::string_view noun_;
  std::vector<std::string_view> known_;
};

class FieldWriter {
 public:
  template <class T, class Kind>
  void operator()(std::string_view key, const T& member, Kind) {
    std::optional<Node> value = Kind::write(member);
    if (value) map_.entries.push_back(Entry{std::string(key), Mark{}, std::move(*value)});
  }
  [[nodiscard]] Node take() { return std::move(map_); }

 private:
  Node map_ = Node::map();
};

// Lists each key as a path: "listeners.timeouts.idle".
class KeyLister {
 public:
  KeyLister(std::string prefix, std::vector<std::string>& out) : prefix_(std::move(prefix)), out_(out) {}

  template <class T, class Kind>
  void operator()(std::string_view key, const T&, Kind) {
    const std::string path = prefix_ + std::string(key);
    out_.push_back(path);
    Kind::keys(path + ".", out_);
  }

 private:
  std::string prefix_;
  std::vector<std::string>& out_;
};

// --- kinds made of others --------------------------------------------------------------------------

// A map of described keys. What is not given keeps the value it had.
template <class Description>
struct Map {
  using Value = typename Description::Value;

  static void read(const Item& item, Value& value) {
    if (!item.is(Node::Kind::map, "a map of keys")) return;
    if constexpr (requires { value.mark; }) value.mark = item.node.mark;
    FieldReader reader(item, Description::kNoun);
    Description::fields(reader, value);
    reader.report_unknown();
    if constexpr (requires { Description::check(reader, value); }) Description::check(reader, value);
  }
  static std::optional<Node> write(const Value& value) {
    FieldWriter writer;
    Description::fields(writer, value);
    return writer.take();
  }
  static void keys(const std::string& prefix, std::vector<std::string>& out) {
    KeyLister lister(prefix, out);
    const Value value;
    Description::fields(lister, value);
  }
};

enum class Empty : std::uint8_t { refused, allowed };

// A sequence, replacing what was there. An item that is wrong still takes its place, so that nothing
// later takes the sequence for shorter than it was meant.
template <class Kind, Empty empty = Empty::refused>
struct Sequence {
  using Value = std::vector<typename Kind::Value>;

  static void read(const Item& item, Value& values) {
    values.clear();
    if (!item.is(Node::Kind::sequence, "a list")) return;
    if (item.node.items.empty() && empty == Empty::refused) item.error("the list is empty");
    for (const Node& node : item.node.items) Kind::read(item.with(node), values.emplace_back());
  }
  static std::optional<Node> write(const Value& values) {
    if (values.empty() && empty == Empty::refused) return std::nullopt;
    Node list = Node::sequence();
    for (const auto& value : values) list.items.push_back(Kind::write(value).value());
    return list;
  }
  static void keys(const std::string& prefix, std::vector<std::string>& out) { Kind::keys(prefix, out); }
};

// A sequence, or its only item without the brackets.
template <class Kind, Empty empty = Empty::refused>
struct OneOrMore : Sequence<Kind, empty> {
  using Value = typename Sequence<Kind, empty>::Value;

  static void read(const Item& item, Value& values) {
    if (item.node.kind == Node::Kind::sequence) return Sequence<Kind, empty>::read(item, values);
    values.clear();
    Kind::read(item, values.emplace_back());
  }
};

template <class Kind>
struct Optional {
  using Value = std::optional<typename Kind::Value>;

  static void read(const Item& item, Value& value) { Kind::read(item, value.emplace()); }
  static std::optional<Node> write(const Value& value) { return value ? Kind::write(*value) : std::nullopt; }
  static void keys(const std::string& prefix, std::vector<std::string>& out) { Kind::keys(prefix, out); }
};

// --- kinds of single values ------------------------------------------------------------------------

struct Leaf {
  static void keys(const std::string&, std::vector<std::string>&) {}
};

struct Flag : Leaf {
  using Value = bool;
  static void read(const Item& item, bool& value);
  static std::optional<Node> write(bool value);
};

struct Duration : Leaf {
  using Value = Milliseconds;
  static void read(const Item& item, Milliseconds& value);
  static std::optional<Node> write(Milliseconds value);
};

// A text of one line: a path, a name, a list for OpenSSL. Not written when empty.
struct Line : Leaf {
  using Value = Text;
  static void read(const Item& item, Text& value);
  static std::optional<Node> write(const Text& value);
};

// Shared by all ranges of Number and Size.
void read_number(const Item& item, std::uint64_t least, std::uint64_t most, std::uint64_t& value);
void read_size(const Item& item, std::uint64_t least, std::uint64_t most, std::uint64_t& value);
Node write_size(std::uint64_t bytes);

template <class T, std::uint64_t least, std::uint64_t most>
struct Number : Leaf {
  using Value = T;
  static void read(const Item& item, T& value) {
    auto number = static_cast<std::uint64_t>(value);
    read_number(item, least, most, number);
    value = static_cast<T>(number);
  }
  static std::optional<Node> write(T value) { return Node::plain(std::to_string(value)); }
};

template <std::uint64_t least, std::uint64_t most>
struct Size : Leaf {
  using Value = std::size_t;
  static void read(const Item& item, std::size_t& value) {
    std::uint64_t size = value;
    read_size(item, least, most, size);
    value = static_cast<std::size_t>(size);
  }
  static std::optional<Node> write(std::size_t value) { return write_size(value); }
};

// The place of `word` in `words`, or nothing after reporting.
std::optional<std::size_t> read_word(const Item& item, const std::vector<std::string_view>& words);

// One of some words. `Words` has Value, and kWords: pairs of a word and its value.
template <class Words>
struct Choice : Leaf {
  using Value = typename Words::Value;

  static void read(const Item& item, Value& value) {
    std::vector<std::string_view> words;
    for (const auto& [word, meaning] : Words::kWords) words.push_back(word);
    if (const auto index = read_word(item, words)) value = Words::kWords[*index].second;
  }
  static std::optional<Node> write(Value value) {
    const auto found = std::find_if(std::begin(Words::kWords), std::end(Words::kWords),
                                    [&](const auto& word) { return word.second == value; });
    return Node::plain(std::string(found->first));
  }
};

}  // namespace tlsproxy::config
