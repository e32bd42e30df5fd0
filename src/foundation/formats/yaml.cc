// SPDX-License-Identifier: Apache-2.0
//
// As json.cc, for yaml-cpp's nodes. Members are looked for by a loop over the map: yaml-cpp's own
// operator[] inserts what it does not find. Every accessor marks its key, and
// refuse_unknown_keys() names those that are left, with the nearest known one.
#include "formats/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/spelling.h"
#include "base/try.h"
#include "formats/yaml_parse.h"
#include "formats/yaml_scalar.h"

namespace wideep::formats {
namespace {

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

std::string describe(const YAML::Node& node) {
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return fmt::format("a list of {}", node.size());
  if (node.IsNull()) return "nothing";
  return fmt::format("'{}'", base::printable(node.Scalar(), 60));
}

std::string expected_found(const std::string& expected, const YAML::Node& found) {
  return fmt::format("expected {}, found {}", expected, describe(found));
}

// Whether two values say the same: 1 and 1.0, yes and true; "1" in quotes is a text.
bool is_same(const YAML::Node& a, const YAML::Node& b) {
  if (a.Type() != b.Type() || a.size() != b.size()) return false;
  if (a.IsMap()) {
    return std::ranges::all_of(a, [&](const auto& member) {
      const auto other = std::ranges::find_if(
          b, [&](const auto& each) { return each.first.Scalar() == member.first.Scalar(); });
      return other != b.end() && is_same(member.second, other->second);
    });
  }
  if (a.IsSequence()) {
    return std::equal(a.begin(), a.end(), b.begin(),
                      [](const YAML::Node& x, const YAML::Node& y) { return is_same(x, y); });
  }
  if (const auto left = yaml_number(a), right = yaml_number(b); left || right) return left == right;
  if (const auto left = yaml_boolean(a), right = yaml_boolean(b); left || right) {
    return left == right;
  }
  return a.IsNull() || a.Scalar() == b.Scalar();
}

std::string join(const std::set<std::string, std::less<>>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

YamlMap::YamlMap(std::shared_ptr<const YAML::Node> node, std::string path, Complaint* complaint)
    : node_(std::move(node)), path_(std::move(path)), complaint_(complaint) {}

// Marks the key as known and returns its value; none if it is absent or null.
std::optional<YAML::Node> YamlMap::find(std::string_view key) const {
  known_.emplace(key);
  if (!node_->IsMap()) return std::nullopt;
  for (const auto& member : *node_) {
    if (member.first.Scalar() != key) continue;
    return member.second.IsNull() ? std::nullopt : std::optional<YAML::Node>(member.second);
  }
  return std::nullopt;
}

std::optional<YAML::Node> YamlMap::require(std::string_view key, const std::string& expected) {
  const std::optional<YAML::Node> value = find(key);
  if (!value && complaint_->status().ok()) {
    std::vector<std::string> others = keys();
    std::erase(others, key);  // present but null: no suggestion
    complain(key, fmt::format("missing; expected {}{}", expected, base::did_you_mean(key, others)));
  }
  return value;
}

bool YamlMap::has(std::string_view key) const { return find(key).has_value(); }

bool YamlMap::is_map(std::string_view key) const {
  const std::optional<YAML::Node> value = find(key);
  return value && value->IsMap();
}

std::vector<std::string> YamlMap::keys() const {
  std::vector<std::string> keys;
  if (!node_->IsMap()) return keys;
  for (const auto& member : *node_) keys.push_back(member.first.Scalar());
  return keys;
}

std::string YamlMap::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

// The error is at the line of the key, or of the map if it has no such key.
void YamlMap::complain(std::string_view key, std::string_view what) {
  int line = line_of(*node_);
  if (node_->IsMap()) {
    for (const auto& member : *node_) {
      if (member.first.Scalar() == key) line = line_of(member.first);
    }
  }
  complaint_->report(line, path_of(key), what);
}

int64_t YamlMap::integer(std::string_view key, IntegerRange range) {
  return require(key, formats::describe(range)) ? integer_or(key, 0, range) : 0;
}

int64_t YamlMap::integer_or(std::string_view key, int64_t fallback, IntegerRange range) {
  const std::optional<YAML::Node> value = find(key);
  if (!value) return fallback;
  const std::optional<int64_t> integer = yaml_integer(*value);
  if (integer && range.contains(*integer)) return *integer;
  complain(key, expected_found(formats::describe(range), *value));
  return fallback;
}

bool YamlMap::boolean_or(std::string_view key, bool fallback) {
  const std::optional<YAML::Node> value = find(key);
  if (!value) return fallback;
  const std::optional<bool> boolean = yaml_boolean(*value);
  if (!boolean) complain(key, expected_found("true or false", *value));
  return boolean.value_or(fallback);
}

double YamlMap::number(std::string_view key, NumberRange range) {
  return require(key, formats::describe(range)) ? number_or(key, 0.0, range) : 0.0;
}

double YamlMap::number_or(std::string_view key, double fallback, NumberRange range) {
  const std::optional<YAML::Node> value = find(key);
  if (!value) return fallback;
  const std::optional<double> number = yaml_number(*value);
  if (number && range.contains(*number)) return *number;
  complain(key, expected_found(formats::describe(range), *value));
  return fallback;
}

std::string YamlMap::string_or(std::string_view key, std::string fallback) {
  const std::optional<YAML::Node> value = find(key);
  if (!value) return fallback;
  if (value->IsScalar()) return value->Scalar();
  complain(key, expected_found("a string", *value));
  return fallback;
}

std::vector<std::string> YamlMap::texts(std::string_view key) {
  const std::optional<YAML::Node> value = require(key, "a value");
  if (!value) return {};
  if (value->IsScalar()) return {value->Scalar()};
  std::vector<std::string> texts;
  for (const YAML::Node& element : *value) {
    if (value->IsSequence() && element.IsScalar()) {
      texts.push_back(element.Scalar());
      continue;
    }
    complain(key, expected_found("a value or a list of values", *value));
    return {};
  }
  if (value->IsMap()) complain(key, expected_found("a value or a list of values", *value));
  return texts;
}

std::vector<int64_t> YamlMap::integers(std::string_view key, IntegerRange range) {
  const std::optional<YAML::Node> value = require(key, "a list of integers");
  if (!value) return {};
  if (!value->IsSequence()) {
    complain(key, expected_found("a list of integers", *value));
    return {};
  }
  std::vector<int64_t> integers;
  for (const YAML::Node& element : *value) {
    const std::optional<int64_t> integer = yaml_integer(element);
    if (!integer || !range.contains(*integer)) {
      complaint_->report(line_of(element), fmt::format("{}[{}]", path_of(key), integers.size()),
                         expected_found(formats::describe(range), element));
      return {};
    }
    integers.push_back(*integer);
  }
  return integers;
}

YamlMap YamlMap::map(std::string_view key) {
  std::optional<YAML::Node> value = require(key, "a map");
  if (value && !value->IsMap()) {
    complain(key, expected_found("a map", *value));
    value.reset();
  }
  // After an error the view is empty but has its path, so that callers can go on without a check.
  const YAML::Node node = value ? *value : YAML::Node(YAML::NodeType::Map);
  return {std::make_shared<const YAML::Node>(node), path_of(key), complaint_};
}

void YamlMap::refuse_unknown_keys() {
  for (const std::string& key : keys()) {
    if (known_.contains(key)) continue;
    complain(key,
             fmt::format("unknown key{}; known keys: {}",
                         base::did_you_mean(key, {known_.begin(), known_.end()}), join(known_)));
    return;
  }
}

Result<YamlDocument> YamlDocument::read(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const std::string text, read_file(path));
  return parse(text, path);
}

Result<YamlDocument> YamlDocument::parse(const std::string& text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const YAML::Node node, parse_yaml(text, name));
  if (!node.IsMap() && !node.IsNull()) {
    return invalid_input(
        fmt::format("{}:{}: {}", name, line_of(node), expected_found("a map", node)));
  }
  YamlDocument document;
  document.node_ = document.whole_ = std::make_shared<const YAML::Node>(node);
  document.complaint_ = std::make_unique<Complaint>(name);
  return document;
}

YamlMap YamlDocument::root() const { return {node_, path_, complaint_.get()}; }

Status YamlDocument::enter(std::string_view path) {
  for (std::string_view rest = path; !rest.empty();) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view key = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::shared_ptr<const YAML::Node> found;
    std::vector<std::string> maps;
    for (const auto& member : *node_) {
      if (!member.second.IsMap()) continue;
      maps.push_back(member.first.Scalar());
      if (maps.back() == key) found = std::make_shared<const YAML::Node>(member.second);
    }
    if (found == nullptr) {
      const std::string where = path_.empty() ? "the file" : path_;
      complaint_->report(
          line_of(*node_), path,
          fmt::format("no such part: expected one of the maps of {}, {}; found '{}'", where,
                      maps.empty() ? "which has none" : fmt::format("{}", fmt::join(maps, ", ")),
                      base::printable(std::string(key), 60)));
      return status();
    }
    node_ = found;
    path_ += fmt::format("{}{}", path_.empty() ? "" : ".", key);
  }
  return {};
}

void YamlDocument::inherit(std::span<const std::string_view> but) {
  YAML::Node merged(YAML::NodeType::Map);
  for (const auto& member : *node_) merged.force_insert(member.first, member.second);
  for (const auto& member : *whole_) {
    const std::string& key = member.first.Scalar();
    if (std::ranges::find(but, key) != but.end()) continue;
    const auto own =
        std::ranges::find_if(*node_, [&](const auto& each) { return each.first.Scalar() == key; });
    if (own == node_->end()) {
      merged.force_insert(member.first, member.second);
    } else if (!is_same(own->second, member.second)) {
      complaint_->report(
          line_of(own->first), fmt::format("{}.{}", path_, key),
          fmt::format("{} contradicts line {}, where {} is {} for all parts of the "
                      "file; leave it out at one of the two",
                      describe(own->second), line_of(member.first), key, describe(member.second)));
    }
  }
  node_ = std::make_shared<const YAML::Node>(merged);
}

std::string YamlDocument::text() const {
  return node_->IsNull() ? std::string() : YAML::Dump(*node_) + "\n";
}

}  // namespace wideep::formats
