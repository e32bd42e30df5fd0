// SPDX-License-Identifier: Apache-2.0
#include "formats/page.h"

#include "formats/json_text.h"

#include <utility>

namespace wideep::formats {
namespace {

// Continues after each replacement, so that a replacement is not searched again.
std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

std::string escape_html(std::string text) {
  // '&' first: the other replacements contain it.
  text = replace_all(std::move(text), "&", "&amp;");
  text = replace_all(std::move(text), "<", "&lt;");
  return replace_all(std::move(text), "\"", "&quot;");
}

// In JSON '<' occurs only inside strings, where \u003c means the same. Without '<' a value can
// contain neither </script> nor <!--.
std::string script_json(const nlohmann::ordered_json& value) {
  using nlohmann::ordered_json;
  return replace_all(json_text(value), "<", "\\u003c");
}

std::string fill_marks(std::string_view page,
                       const std::map<std::string_view, std::string>& values) {
  std::string text;
  // A single pass over the page, so that a value that looks like a mark stays as it is.
  while (true) {
    const size_t begin = page.find('@');
    text += page.substr(0, begin);
    if (begin == page.npos) return text;
    page.remove_prefix(begin + 1);
    const auto value = values.find(page.substr(0, page.find('@')));
    text += value == values.end() ? "@" : value->second;
    if (value != values.end()) page.remove_prefix(value->first.size() + 1);
  }
}

}  // namespace wideep::formats
