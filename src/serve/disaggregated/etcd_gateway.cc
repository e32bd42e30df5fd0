// SPDX-License-Identifier: Apache-2.0
#include "disaggregated/etcd_gateway.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/printable.h"
#include "base/try.h"
#include "client/event_stream.h"
#include "formats/base64.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::disaggregated {
namespace {

using formats::base64;
using nlohmann::json;

// A cluster's servers are some hundred bytes each.
constexpr size_t kMaxReplyBytes = size_t{16} << 20;
constexpr std::chrono::milliseconds kStep{100};

// The member of that name, which is null where there is none.
json member_of(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? json() : *found;
}

// The gateway writes 64-bit integers as strings, and leaves out those that are 0.
std::optional<int64_t> integer_of(const json& value) {
  if (value.is_null()) return 0;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  char* end = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' ? std::optional(number) : std::nullopt;
}

std::optional<std::string> text_of(const json& value) {
  if (value.is_null()) return std::string();
  return value.is_string() ? formats::from_base64(value.get_ref<const std::string&>())
                           : std::nullopt;
}

// The first key after all that begin with the prefix.
std::string end_of(std::string prefix) {
  ++prefix.back();
  return prefix;
}

}  // namespace

Result<std::string> EtcdGateway::post(const std::string& path, const std::string& body) {
  const std::string url = "http://" + address_;
  WIDEEP_TRY_ASSIGN(const client::HttpAddress address, client::parse_address(url));
  WIDEEP_TRY_ASSIGN(const auto streams, client::EventStreams::open(
                                            address, kPatience, {.whole_bytes = kMaxReplyBytes}));
  std::string reply;
  Status ended;
  streams->post(
      path, body, [&](std::string_view whole) { reply = whole; },
      [&](const Status& status) { ended = status; }, /*whole=*/true);
  const auto until = std::chrono::steady_clock::now() + 2 * kPatience;
  while (streams->under_way() > 0 && std::chrono::steady_clock::now() < until) {
    streams->wait(kStep);
  }
  if (streams->under_way() > 0) {
    ended = failed(fmt::format("{} has not ended within {} s", path, 2 * kPatience.count()));
  }
  WIDEEP_TRY(ended.at("etcd://" + address_));
  return reply;
}

Status EtcdGateway::unreadable(const std::string& path, const std::string& reply) const {
  return failed(fmt::format("etcd://{}: {}: expected a reply of etcd's JSON gateway, found '{}'",
                            address_, path, base::printable(reply, 80)));
}

Result<std::string> EtcdGateway::grant(int seconds) {
  constexpr const char* kPath = "/v3/lease/grant";
  WIDEEP_TRY_ASSIGN(const std::string reply,
                    post(kPath, formats::json_text(json{{"TTL", std::to_string(seconds)}})));
  const auto parsed = formats::parse_json(reply, kPath);
  const json id = parsed.ok() ? member_of(*parsed, "ID") : json();
  if (!id.is_string()) return unreadable(kPath, reply);
  return id.get<std::string>();
}

Result<bool> EtcdGateway::keep_alive(const std::string& lease) {
  constexpr const char* kPath = "/v3/lease/keepalive";
  WIDEEP_TRY_ASSIGN(const std::string reply, post(kPath, formats::json_text(json{{"ID", lease}})));
  const auto parsed = formats::parse_json(reply, kPath);
  const json result = parsed.ok() ? member_of(*parsed, "result") : json();
  const auto seconds = integer_of(member_of(result, "TTL"));
  if (!result.is_object() || !seconds) return unreadable(kPath, reply);
  return *seconds > 0;
}

Status EtcdGateway::revoke(const std::string& lease) {
  return post("/v3/lease/revoke", formats::json_text(json{{"ID", lease}})).status();
}

Status EtcdGateway::put(const Entry& entry, const std::string& lease) {
  const json body = {{"key", base64(entry.key)}, {"value", base64(entry.value)}, {"lease", lease}};
  return post("/v3/kv/put", formats::json_text(body)).status();
}

Status EtcdGateway::remove(const std::string& key) {
  return post("/v3/kv/deleterange", formats::json_text(json{{"key", base64(key)}})).status();
}

Result<EtcdGateway::Range> EtcdGateway::range(const std::string& prefix) {
  constexpr const char* kPath = "/v3/kv/range";
  const json body = {{"key", base64(prefix)}, {"range_end", base64(end_of(prefix))}};
  WIDEEP_TRY_ASSIGN(const std::string reply, post(kPath, formats::json_text(body)));
  const auto parsed = formats::parse_json(reply, kPath);
  const json header = parsed.ok() ? member_of(*parsed, "header") : json();
  const auto revision = integer_of(member_of(header, "revision"));
  if (!header.is_object() || !revision) return unreadable(kPath, reply);
  Range range{.entries = {}, .revision = *revision};
  for (const json& each : member_of(*parsed, "kvs")) {
    auto key = text_of(member_of(each, "key")), value = text_of(member_of(each, "value"));
    if (!key || !value) return unreadable(kPath, reply);
    range.entries.push_back({*std::move(key), *std::move(value)});
  }
  return range;
}

}  // namespace wideep::disaggregated
