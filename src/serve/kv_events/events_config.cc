// SPDX-License-Identifier: Apache-2.0
#include "kv_events/events_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json.h"

namespace wideep::kv_events {
namespace {

constexpr const char* kKeys =
    "enable_kv_cache_events, publisher, endpoint, replay_endpoint, buffer_steps, hwm, "
    "max_queue_size, topic and event_form";

constexpr size_t kMaxTopic = 512;
constexpr size_t kMaxPath = 100;  // of a socket's file, which the system bounds

// "tcp://HOST:PORT" or "ipc://PATH".
bool is_endpoint(std::string_view text) {
  constexpr std::string_view kTcp = "tcp://", kFile = "ipc://";
  if (text.find_first_of(std::string_view(" \t\r\n\0", 5)) != text.npos) return false;
  if (text.starts_with(kFile)) {
    return text.size() > kFile.size() && text.size() <= kFile.size() + kMaxPath;
  }
  if (!text.starts_with(kTcp)) return false;
  text.remove_prefix(kTcp.size());
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return false;
  int port = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, port);
  return read.ec == std::errc() && read.ptr == end && port >= 1 && port <= 65535;
}

void check_endpoint(const formats::JsonObject& root, const char* key, const std::string& value) {
  if (is_endpoint(value)) return;
  root.complain(key, fmt::format("expected tcp://HOST:PORT or ipc://PATH, found '{}'",
                                 base::printable(value, 80)));
}

size_t read_count(const formats::JsonObject& root, const char* key, size_t by_default) {
  return static_cast<size_t>(
      root.integer_or(key, static_cast<int64_t>(by_default), {.min = 1, .max = 1'000'000}));
}

}  // namespace

bool EventsConfig::connects() const {
  return endpoint.starts_with("tcp://") && endpoint.find('*') == std::string::npos &&
         endpoint.find("::") == std::string::npos;
}

Result<std::optional<EventsConfig>> read_events_config(std::string_view json,
                                                       const std::string& name) {
  WIDEEP_TRY_ASSIGN(const formats::JsonDocument document, formats::JsonDocument::parse(json, name));
  const formats::JsonObject root = document.root();
  EventsConfig config;
  const bool is_on = root.boolean_or("enable_kv_cache_events", false);
  const std::string publisher = root.string_or("publisher", "zmq");
  config.has_publisher = publisher == "zmq";
  if (!config.has_publisher && publisher != "null") {
    root.complain("publisher", fmt::format("expected \"zmq\" or \"null\", found '{}'",
                                           base::printable(publisher, 40)));
  }
  config.endpoint = root.string_or("endpoint", config.endpoint);
  check_endpoint(root, "endpoint", config.endpoint);
  config.replay_endpoint = root.string_or("replay_endpoint", "");
  if (!config.replay_endpoint.empty()) {
    check_endpoint(root, "replay_endpoint", config.replay_endpoint);
    if (config.replay_endpoint == config.endpoint) {
      root.complain("replay_endpoint", "is the same as endpoint: give it a port of its own");
    }
  }
  config.buffer_steps = read_count(root, "buffer_steps", config.buffer_steps);
  config.hwm = static_cast<int>(read_count(root, "hwm", static_cast<size_t>(config.hwm)));
  config.max_queue_size = read_count(root, "max_queue_size", config.max_queue_size);
  config.topic = root.string_or("topic", "");
  if (config.topic.size() > kMaxTopic) {
    root.complain("topic", fmt::format("expected at most {} bytes, found {}", kMaxTopic,
                                       config.topic.size()));
  }
  const std::string form = root.string_or("event_form", "map");
  if (form == "array") {
    config.form = EventForm::kArray;
  } else if (form != "map") {
    root.complain("event_form", fmt::format("expected \"map\" or \"array\", found '{}'",
                                            base::printable(form, 40)));
  }
  if (const auto unknown = root.unasked_keys(); !unknown.empty()) {
    root.complain(unknown.front(), fmt::format("is no key of KV events, which has {}", kKeys));
  }
  WIDEEP_TRY(document.status());
  return is_on ? std::optional(config) : std::nullopt;
}

}  // namespace wideep::kv_events
