// SPDX-License-Identifier: Apache-2.0
#include "traces/span.h"

#include <nlohmann/json.hpp>

#include "formats/json_text.h"

namespace wideep::traces {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const Value& value) {
  struct Writer {
    ordered_json operator()(const std::string& text) const { return {{"stringValue", text}}; }
    ordered_json operator()(int64_t number) const { return {{"intValue", std::to_string(number)}}; }
    ordered_json operator()(double number) const { return {{"doubleValue", number}}; }
    ordered_json operator()(bool flag) const { return {{"boolValue", flag}}; }
    ordered_json operator()(const std::vector<std::string>& texts) const {
      ordered_json values = ordered_json::array();
      for (const std::string& each : texts) values.push_back((*this)(each));
      return {{"arrayValue", {{"values", std::move(values)}}}};
    }
  };
  return std::visit(Writer(), value);
}

ordered_json json_of(const Attributes& attributes) {
  ordered_json all = ordered_json::array();
  for (const auto& [key, value] : attributes) {
    all.push_back({{"key", key}, {"value", json_of(value)}});
  }
  return all;
}

ordered_json json_of(const Span& span) {
  ordered_json json = {{"traceId", span.trace_id}, {"spanId", span.span_id}};
  if (!span.state.empty()) json["traceState"] = span.state;
  if (!span.parent_id.empty()) json["parentSpanId"] = span.parent_id;
  json["name"] = span.name;
  json["kind"] = static_cast<int>(span.kind);
  json["startTimeUnixNano"] = std::to_string(span.begin_ns);
  json["endTimeUnixNano"] = std::to_string(span.end_ns);
  json["attributes"] = json_of(span.attributes);
  constexpr int kError = 2;
  if (!span.error.empty()) json["status"] = {{"code", kError}, {"message", span.error}};
  return json;
}

}  // namespace

std::string export_request(const Resource& resource, std::span<const Span> spans) {
  ordered_json all = ordered_json::array();
  for (const Span& span : spans) all.push_back(json_of(span));
  const ordered_json scope = {{"scope", {{"name", "wideep"}, {"version", resource.version}}},
                              {"spans", std::move(all)}};
  const ordered_json body = {
      {"resourceSpans",
       ordered_json::array({{{"resource", {{"attributes", json_of(resource.attributes)}}},
                             {"scopeSpans", ordered_json::array({scope})}}})}};
  // Replaces bytes that are no UTF-8, which a path may have.
  return formats::json_text(body);
}

}  // namespace wideep::traces
