// SPDX-License-Identifier: Apache-2.0
//
// Overloads of read_value() for numbers, texts, lists and objects: a list of lists reads itself.
// The place of a value is a chain on the stack that becomes text only for an error, since a log
// has millions of values and hardly ever an error.
#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/printable.h"
#include "base/spelling.h"
#include "base/try.h"
#include "formats/json.h"
#include "formats/json_parse.h"
#include "formats/range.h"
#include "recordings/routing_log.h"
#include "recordings/routing_log_version.h"

namespace wideep::recordings {
namespace {

using formats::JsonDocument;
using nlohmann::json;

constexpr int64_t kMaxCount = int64_t{1} << 53;

// The position of a value in the document. Values are many and errors are rare, so the text is made
// only for an error.
struct Place {
  const Place* parent = nullptr;
  std::string_view key;  // empty: an element of the parent
  size_t index = 0;

  std::string text() const {
    const std::string before = parent == nullptr ? "" : parent->text();
    if (key.empty()) return fmt::format("{}[{}]", before, index);
    return before.empty() ? std::string(key) : fmt::format("{}.{}", before, key);
  }
};

Status wrong(const Place& place, std::string_view expected, const json& found) {
  return invalid_input(
      fmt::format("{}: expected {}, found {}", place.text(), expected, formats::describe(found)));
}

template <std::integral T>
Status read_value(const json& value, const Place& place, T* out) {
  // Through double, so that 3.0 and 3e2 are integers too; −1 is outside every range.
  const double number = value.is_number() ? value.get<double>() : -1;
  const std::optional<int64_t> integer = formats::exact_integer(number);
  if (!integer || *integer < 0 || *integer > int64_t{std::numeric_limits<T>::max()}) {
    return wrong(place,
                 fmt::format("an integer from 0 to {}",
                             std::min<int64_t>(kMaxCount, std::numeric_limits<T>::max())),
                 value);
  }
  *out = static_cast<T>(*integer);
  return {};
}

Status read_value(const json& value, const Place& place, double* out) {
  if (!value.is_number()) return wrong(place, "a number", value);
  *out = value.get<double>();
  return {};
}

Status read_value(const json& value, const Place& place, std::string* out) {
  if (!value.is_string()) return wrong(place, "a text", value);
  *out = value.get<std::string>();
  return {};
}

Status read_value(const json& value, const Place& place, RoutingLog::Iteration* out);
Status read_value(const json& value, const Place& place, RoutingLog::LayerUpdate* out);

template <typename T>
Status read_value(const json& value, const Place& place, std::vector<T>* out) {
  if (!value.is_array()) return wrong(place, "a list", value);
  out->resize(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    WIDEEP_TRY(read_value(value[i], Place{.parent = &place, .key = "", .index = i}, &(*out)[i]));
  }
  return {};
}

// Reads the keys of an object and refuses keys that were not read. The first error wins.
class Keys {
 public:
  Keys(const json& object, const Place* place) : object_(object), place_(place) {}

  template <typename T>
  void read(std::string_view key, T* out) {
    known_.emplace_back(key);
    if (!status_.ok()) return;
    const Place place{.parent = place_, .key = key, .index = 0};
    const auto found = object_.find(key);
    status_ = found == object_.end() ? invalid_input(place.text() + ": this key is missing")
                                     : read_value(*found, place, out);
  }

  // A key that files of earlier builds do not have.
  template <typename T>
  void read_if_there(std::string_view key, T* out) {
    if (object_.contains(key)) return read(key, out);
    known_.emplace_back(key);
  }

  // The first error; call it after the last read().
  Status finish() const {
    WIDEEP_TRY(status_);
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const Place place{.parent = place_, .key = key, .index = 0};
      return invalid_input(fmt::format("{}: unknown key{}", base::printable(place.text()),
                                       base::did_you_mean(key, known_)));
    }
    return {};
  }

 private:
  const json& object_;
  const Place* place_;
  std::vector<std::string> known_;
  Status status_;
};

Status read_value(const json& value, const Place& place, RoutingLog::Iteration* out) {
  if (!value.is_object()) return wrong(place, "an object", value);
  Keys keys(value, &place);
  keys.read("iteration", &out->iteration);
  keys.read("prompt_tokens", &out->prompt_tokens);
  keys.read("generated_tokens", &out->generated_tokens);
  keys.read("sent", &out->sent);
  keys.read("counts", &out->counts);
  keys.read("critical_path_us", &out->critical_path_us);
  return keys.finish();
}

Status read_value(const json& value, const Place& place, RoutingLog::LayerUpdate* out) {
  if (!value.is_object()) return wrong(place, "an object", value);
  Keys keys(value, &place);
  keys.read("layer", &out->layer);
  keys.read("decided", &out->decided);
  keys.read("switched", &out->switched);
  keys.read("moves", &out->moves);
  return keys.finish();
}

// Checked before the keys: a file of a later version may have other keys, and its version is the
// clearer error.
Status check_version(const json& root) {
  const auto version = root.find("version");
  if (version != root.end() && *version == kRoutingLogVersion) return {};
  if (version == root.end())
    return invalid_input("version: this key is missing; not a routing log");
  return wrong({.key = "version"}, std::to_string(kRoutingLogVersion), *version);
}

Status read_root(const json& root, RoutingLog* log) {
  WIDEEP_TRY(check_version(root));
  Keys keys(root, nullptr);
  int version = 0;
  keys.read("version", &version);
  keys.read("model", &log->model);
  keys.read("ep_size", &log->ep_size);
  keys.read("num_experts", &log->num_experts);
  keys.read("num_slots", &log->num_slots);
  keys.read("top_k", &log->top_k);
  keys.read("layers", &log->layers);
  keys.read("requests", &log->requests);
  keys.read("tokens_per_second", &log->tokens_per_second);
  keys.read("critical_path_ms", &log->critical_path_ms);
  keys.read("wall_ms", &log->wall_ms);
  keys.read("iterations", &log->iterations);
  keys.read_if_there("layer_updates", &log->layer_updates);
  keys.read("request_counts", &log->request_counts);
  WIDEEP_TRY(keys.finish());
  return check_routing_log(*log);
}

Result<RoutingLog> from_document(const JsonDocument& document, const std::string& name) {
  RoutingLog log;
  WIDEEP_TRY(read_root(document.root().raw(), &log).at(name));
  return log;
}

}  // namespace

Result<RoutingLog> parse_routing_log(std::string_view text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::parse(text, name));
  return from_document(document, name);
}

Result<RoutingLog> read_routing_log(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::read(path));
  return from_document(document, path);
}

}  // namespace wideep::recordings
