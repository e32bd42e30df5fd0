// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/component.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "base/spelling.h"
#include "formats/json_parse.h"

namespace wideep::tokenizer {
namespace {

const nlohmann::json& empty_object() {
  static const nlohmann::json instance = nlohmann::json::object();
  return instance;
}

}  // namespace

std::string Component::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

Component Component::child(std::string_view key) const {
  const auto found = raw().find(key);
  if (found != raw().end() && found->is_object()) return {&*found, path_of(key), complaint_};
  complain_at(key, found == raw().end() ? "missing; expected an object"
                                        : "expected an object, found " + formats::describe(*found));
  return {&empty_object(), path_of(key), complaint_};
}

std::vector<Component> Component::children(std::string_view key) const {
  const auto found = raw().find(key);
  if (found == raw().end() || !found->is_array()) {
    complain_at(key, "expected a list of objects");
    return {};
  }
  std::vector<Component> list;
  for (size_t i = 0; i < found->size(); ++i) {
    const std::string path = fmt::format("{}[{}]", path_of(key), i);
    const nlohmann::json& element = (*found)[i];
    if (!element.is_object()) {
      complaint_->report(path, "expected an object, found " + formats::describe(element));
      return {};
    }
    list.emplace_back(&element, path, complaint_);
  }
  return list;
}

void Component::allow_keys(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : raw().items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    complain_at(base::printable(key, 60),
                "unknown key" + base::did_you_mean(key, {keys.begin(), keys.end()}));
  }
}

void Component::expect(bool condition, std::string_view key, std::string_view expected) const {
  if (condition) return;
  const auto found = raw().find(key);
  const std::string value = found == raw().end() ? "absence" : formats::describe(*found);
  complain_at(key, fmt::format("{} is not supported; expected {}", value, expected));
}

}  // namespace wideep::tokenizer
