// SPDX-License-Identifier: Apache-2.0
//
// nlohmann's lexer with a builder of our own, which refuses what its builder would take: a key
// twice, where the last would win in silence, and nesting so deep that code which walks the value
// recursively overflows its stack. An iterator counts the characters, because the lexer knows a
// position only for its own errors.
#include "formats/json_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "formats/json_text.h"

namespace wideep::formats {
namespace {

using nlohmann::json;

// Gives characters to nlohmann's lexer and stores the position in *cursor. The lexer itself gives a
// position only for its own errors, not for those that Builder finds.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** cursor) : at_(at), cursor_(cursor) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *cursor_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** cursor_;
};

// Strips the prefix of nlohmann's message "[json.exception.parse_error.101] parse error at line 1,
// column 2: syntax error ...": error_at() gives the position.
std::string reason_of(std::string_view text) {
  const auto skip_past = [&text](std::string_view mark) {
    const size_t at = text.find(mark);
    if (at != text.npos) text.remove_prefix(at + mark.size());
  };
  if (text.starts_with("[json.exception")) skip_past("] ");
  if (text.starts_with("parse error")) skip_past(": ");
  return base::printable(text, 200);
}

// Builds the value from the parser's events. Unlike nlohmann's own builder it refuses duplicate
// keys, and it bounds the depth, because recursive code walks the value. Implements
// nlohmann::json_sax of Json, which is json or ordered_json. exact: integers of any size keep their
// digits.
template <typename Json, bool exact>
class Builder {
 public:
  explicit Builder(size_t max_members) : max_members_(max_members) {}
  Json& root() { return root_; }
  const std::string& error() const { return error_; }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& digits) {
    if (exact && digits.find_first_of(".eE") == digits.npos) {
      return add(Json::binary({digits.begin(), digits.end()}));
    }
    return add(value);
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(typename Json::binary_t& value) { return add(std::move(value)); }
  bool start_object(size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto& members = open_.back()->template get_ref<typename Json::object_t&>();
    if (members.size() == max_members_) {
      return refuse(fmt::format("an object of more than {} members", max_members_));
    }
    auto [position, inserted] = members.emplace(name, nullptr);
    if (!inserted) return refuse(fmt::format("key '{}' appears twice", base::printable(name)));
    member_ = &position->second;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    return refuse(reason_of(error.what()));
  }

 private:
  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  Json* place(Json value) {
    Json* target = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      target = &open_.back()->template get_ref<typename Json::array_t&>().emplace_back();
    } else if (!open_.empty()) {
      target = member_;
    }
    *target = std::move(value);
    return target;
  }

  bool open(Json empty) {
    if (open_.size() == kMaxJsonDepth) {
      return refuse(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    }
    // Pointers into the parent stay valid: it gets no further element before this one is closed.
    open_.push_back(place(std::move(empty)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  bool refuse(std::string error) {
    error_ = std::move(error);
    return false;
  }

  size_t max_members_;
  Json root_;
  std::vector<Json*> open_;  // from the root to the innermost object or array being read
  Json* member_ = nullptr;   // the place for the value of the last key
  std::string error_;
};

// end: the number of bytes read so far; the error is at the last of them.
Status error_at(std::string_view text, size_t end, const std::string& name, std::string_view what) {
  const std::string_view before = text.substr(0, end == 0 ? 0 : end - 1);
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return invalid_input(
      fmt::format("{}:{}:{}: {}", name, line, before.size() - line_start + 1, what));
}

template <typename Json, bool exact>
Result<Json> parse(std::string_view text, const std::string& name, size_t max_members) {
  // nlohmann's lexer takes a zero byte for the end of the text and would ignore the rest.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return error_at(text, zero + 1, name, "not valid JSON: a zero byte");
  }
  const char* cursor = text.data();
  Builder<Json, exact> builder(max_members);
  const bool ok = Json::sax_parse(CountingIterator(text.data(), &cursor),
                                  CountingIterator(text.data() + text.size(), &cursor), &builder);
  if (ok) return std::move(builder.root());
  return error_at(text, static_cast<size_t>(cursor - text.data()), name,
                  "not valid JSON: " + builder.error());
}

}  // namespace

Result<json> parse_json(std::string_view text, const std::string& name) {
  return parse<json, false>(text, name, SIZE_MAX);
}

Result<nlohmann::ordered_json> parse_exact_json(std::string_view text, const std::string& name,
                                                size_t max_members) {
  return parse<nlohmann::ordered_json, true>(text, name, max_members);
}

const std::vector<uint8_t>* large_integer(const nlohmann::ordered_json& value) {
  return value.is_binary() ? &value.get_binary() : nullptr;
}

std::string describe(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_string()) {
    return fmt::format("'{}'", base::printable(value.get_ref<const std::string&>(), 60));
  }
  return json_text(value);
}

}  // namespace wideep::formats
