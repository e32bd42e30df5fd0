// SPDX-License-Identifier: Apache-2.0
//
// Goes over the members of a JSON object. Values are skipped by their quotes and brackets alone:
// what else is wrong with them is for whoever reads them. About 1 GB/s.
//
//   JsonMembers members(body);
//   while (members.next()) use(members.key(), members.value());
//   if (!members.is_good()) …  // no object, it is cut, or something is behind it
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <string_view>

namespace wideep::server {

class JsonMembers {
 public:
  // The text has to outlive this.
  explicit JsonMembers(std::string_view text);
  // Goes to the next member; false: the end, or something is wrong.
  bool next();
  // Whether what was read so far was the beginning of an object; at the end: whether all of the text
  // was one.
  bool is_good() const { return is_good_; }

  // As they stand in the text: the key without its quotes, the member from them to its value's end.
  std::string_view key() const { return key_; }
  std::string_view value() const { return value_; }
  std::string_view member() const {
    return {key_.data() - 1, static_cast<size_t>(value_.data() + value_.size() - key_.data()) + 1};
  }
  // Bytes before the first member: up to and with "{". REQUIRES: is_good().
  size_t begin() const { return begin_; }

 private:
  void skip_space();
  bool take(char expected);
  bool skip_string();
  bool skip_value();

  std::string_view text_, key_, value_;
  size_t at_ = 0, begin_ = 0;
  bool is_good_ = false;
  bool is_first_ = true;
};

}  // namespace wideep::server
