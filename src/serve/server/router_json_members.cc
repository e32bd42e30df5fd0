// SPDX-License-Identifier: Apache-2.0
#include "server/router_json_members.h"

#include <algorithm>

namespace wideep::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

JsonMembers::JsonMembers(std::string_view text) : text_(text) {
  skip_space();
  is_good_ = take('{');
  begin_ = at_;
}

bool JsonMembers::next() {
  if (!is_good_) return false;
  skip_space();
  if (at_ < text_.size() && text_[at_] == '}') {
    is_good_ = text_.find_first_not_of(kSpace, at_ + 1) == text_.npos;
    return false;
  }
  if (is_first_) {
    is_first_ = false;
  } else {
    is_good_ = take(',');
    skip_space();
  }
  const size_t name = at_ + 1;
  is_good_ = is_good_ && skip_string();
  if (!is_good_) return false;
  key_ = text_.substr(name, at_ - 1 - name);
  skip_space();
  is_good_ = take(':');
  skip_space();
  const size_t begin = at_;
  is_good_ = is_good_ && skip_value();
  if (is_good_) value_ = text_.substr(begin, at_ - begin);
  return is_good_;
}

void JsonMembers::skip_space() {
  at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size());
}

bool JsonMembers::take(char expected) {
  if (at_ >= text_.size() || text_[at_] != expected) return false;
  ++at_;
  return true;
}

bool JsonMembers::skip_string() {
  if (!take('"')) return false;
  while (at_ < text_.size()) {
    const char found = text_[at_++];
    if (found == '"') return true;
    if (found == '\\') ++at_;
  }
  return false;
}

bool JsonMembers::skip_value() {
  size_t depth = 0;
  const size_t begin = at_;
  while (at_ < text_.size()) {
    const char found = text_[at_];
    if (found == '"') {
      if (!skip_string()) return false;
    } else if (found == '{' || found == '[') {
      ++depth;
      ++at_;
    } else if (found == '}' || found == ']' || found == ',') {
      if (depth == 0) return at_ > begin;
      if (found != ',') --depth;
      ++at_;
    } else {
      ++at_;
      continue;
    }
    if (depth == 0) return true;
  }
  return false;
}

}  // namespace wideep::server
