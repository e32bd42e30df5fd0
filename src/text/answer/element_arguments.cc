// SPDX-License-Identifier: Apache-2.0
//
// A text is passed on as it comes, up to its own end. Other values wait for theirs, and become JSON
// then: the schema says, through all levels, what is a text; elements named "item" are a list, but
// where it says object. A value that waits is looked at again only when it has grown by half.
#include "answer/element_arguments.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "answer/cursor.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::answer {
namespace {

constexpr size_t kShortValue = 4096;

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_of(" \t\r\n<>\"'") == text.npos;
}

}  // namespace

std::string ElementArguments::end_tag(std::string_view name) const {
  return std::string(tags_.value_end) + std::string(name) + std::string(tags_.key_end);
}

size_t ElementArguments::take(std::string_view text, bool is_all, AnswerParts& out) {
  if (name_.empty()) return take_between(text, is_all, out);
  return tool_.types_of(name_) == kText ? take_text(text, is_all, out)
                                        : take_value(text, is_all, out);
}

void ElementArguments::end(AnswerParts& out) {
  out.add_arguments(has_any_ ? "}" : "{}");
  is_done_ = true;
}

size_t ElementArguments::take_between(std::string_view text, bool is_all, AnswerParts& out) {
  const size_t space = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (space > 0) return space;
  Cursor call_end(text, is_all), in(text, is_all);
  call_end.literal(tags_.call_end);
  if (call_end.ok()) {
    end(out);
    return call_end.position();
  }
  in.literal(tags_.key_begin);
  const std::string_view name = in.until(tags_.key_end, Cursor::kMaxNameBytes);
  if (call_end.wants_more() || in.wants_more() || (!in.ok() && is_cut_)) return 0;
  // What follows is no argument, so that the call has ended before.
  if (!in.ok() || !is_name(name) || name.front() == '/') {
    end(out);
    return 0;
  }
  name_ = name;
  begin_argument(name, !has_any_, out);
  has_any_ = true;
  if (tool_.types_of(name) == kText) out.add_arguments("\"");
  return in.position();
}

size_t ElementArguments::take_text(std::string_view text, bool is_all, AnswerParts& out) {
  const std::string own = end_tag(name_);
  const std::string_view ends[] = {own, tags_.call_end};
  const size_t found = find_first(text, ends);
  size_t bytes = std::min(found, text.size());
  if (found == text.npos && (!is_all || is_cut_)) {
    bytes -= std::max(partial_marker(text, own), partial_marker(text, tags_.call_end));
  }
  std::string json;
  formats::add_json_characters(text.substr(0, bytes), &json);
  out.add_arguments(json);
  if (found == text.npos) return bytes;
  out.add_arguments("\"");
  name_.clear();
  if (text.substr(found).starts_with(own)) return found + own.size();
  // The call's.
  return found > 0 ? found : take_between(text, is_all, out);
}

size_t ElementArguments::take_value(std::string_view text, bool is_all, AnswerParts& out) {
  if (text.size() < next_try_ && !is_all) return 0;
  const Found found = find_end(text, name_, is_all && !is_cut_);
  next_try_ = found.more && text.size() >= kShortValue ? text.size() + text.size() / 2 : 0;
  if (found.more) return 0;
  out.add_arguments(json_of(text.substr(0, found.bytes), name_, 0));
  name_.clear();
  const size_t bytes = found.bytes + found.end;
  return bytes > 0 ? bytes : take_between(text, is_all, out);
}

// The end of an element, which has others in it.
ElementArguments::Found ElementArguments::find_end(std::string_view text, std::string_view name,
                                                   bool is_all) const {
  const std::string own = end_tag(name);
  const std::string_view token = tags_.key_begin.substr(0, tags_.key_begin.size() - 1);
  size_t depth = 0;
  for (size_t at = text.find(token); at != text.npos; at = text.find(token, at + token.size())) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(tags_.call_end)) return {.bytes = at};
    const bool is_own = depth == 0 && rest.starts_with(own);
    if (is_own) return {.bytes = at, .end = own.size()};
    const bool may_be_more = own.starts_with(rest) || tags_.call_end.starts_with(rest) ||
                             tags_.value_end.starts_with(rest);
    if (may_be_more && !is_all) return {.more = true};
    if (rest.starts_with(tags_.value_end)) {
      depth -= depth > 0 ? 1 : 0;
    } else if (rest.starts_with(tags_.key_begin)) {
      ++depth;
    }
  }
  if (!is_all) return {.more = true};
  return {.bytes = text.size()};
}

// path: the names from the argument on, as in Tool.
std::string ElementArguments::json_of(std::string_view text, const std::string& path,
                                      size_t depth) const {
  const Types types = tool_.types_of(path);
  const std::string_view inner = trimmed(text);
  const bool has_elements =
      inner.starts_with(tags_.key_begin) && types != kText && depth < formats::kMaxJsonDepth - 2;
  if (!has_elements) {
    // Empty objects and lists have nothing to write.
    const bool is_empty = inner.empty() && (types & kText) == 0;
    if (is_empty && (types & kObject) != 0) return "{}";
    if (is_empty && (types & kList) != 0) return "[]";
    return argument_json(text, types);
  }
  std::vector<std::pair<std::string, std::string_view>> elements;
  for (size_t at = text.find(tags_.key_begin); at != text.npos;
       at = text.find(tags_.key_begin, at)) {
    Cursor in(text.substr(at), true);
    in.literal(tags_.key_begin);
    const std::string_view name = in.until(tags_.key_end, Cursor::kMaxNameBytes);
    if (!in.ok() || !is_name(name) || name.front() == '/') {
      at += tags_.key_begin.size();
      continue;
    }
    at += in.position();
    const Found found = find_end(text.substr(at), name, true);
    elements.emplace_back(name, text.substr(at, found.bytes));
    at += found.bytes + found.end;
  }
  const bool is_list = (types & kList) != 0 && std::ranges::all_of(elements, [](const auto& each) {
                         return each.first == "item";
                       });
  std::string json(is_list ? "[" : "{");
  for (const auto& [name, value] : elements) {
    if (json.size() > 1) json += ", ";
    if (!is_list) json += quoted_json(name) + ": ";
    json += json_of(value, member_path(path, name), depth + 1);
  }
  return json + (is_list ? "]" : "}");
}

void ElementArguments::complete(AnswerParts& out) {
  if (!name_.empty()) {
    out.add_arguments(tool_.types_of(name_) == kText ? "\"" : json_of("", name_, 0));
  }
  end(out);
}

}  // namespace wideep::answer
