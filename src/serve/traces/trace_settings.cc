// SPDX-License-Identifier: Apache-2.0
//
// Signal-specific variables (…_TRACES_…) win over those for all signals, as the specification says.
// Nothing is sent unless an endpoint is named: the default of libraries, localhost:4318, would let
// every server complain that nobody is there.
#include "traces/trace_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/numeric_address.h"
#include "base/percent_decoding.h"
#include "base/printable.h"
#include "base/try.h"

namespace wideep::traces {
namespace {

// A variable that is set, and its value.
struct Setting {
  std::string name;
  std::string value;
  bool is_set() const { return !value.empty(); }
};

Setting read(const Variables& variable, const char* name) {
  const char* value = variable(name);
  return {.name = name, .value = value == nullptr ? "" : value};
}

// "OTEL_EXPORTER_OTLP_TRACES_" + end, or else "OTEL_EXPORTER_OTLP_" + end.
Setting read_exporter(const Variables& variable, const std::string& end) {
  const Setting own = read(variable, ("OTEL_EXPORTER_OTLP_TRACES_" + end).c_str());
  return own.is_set() ? own : read(variable, ("OTEL_EXPORTER_OTLP_" + end).c_str());
}

Status wrong(const Setting& setting, std::string_view expected) {
  return invalid_input(fmt::format("{}: expected {}, found '{}'", setting.name, expected,
                                   base::printable(setting.value, 80)));
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// "key=value,key=value", values percent-encoded (W3C Baggage). What is wrong is not echoed: headers
// have keys.
Result<std::vector<std::pair<std::string, std::string>>> read_pairs(const Setting& setting) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::string_view rest = setting.value;
  while (!rest.empty()) {
    const std::string_view item = trimmed(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.find(','), rest.size() - 1) + 1);
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string key(trimmed(item.substr(0, equals)));
    const auto value = equals == item.npos
                           ? std::nullopt
                           : base::percent_decoded(trimmed(item.substr(equals + 1)));
    if (!value || key.empty()) {
      return invalid_input(fmt::format(
          "{}: expected key=value,key=value with values percent-encoded, found something else in "
          "item {}",
          setting.name, pairs.size() + 1));
    }
    pairs.emplace_back(key, *value);
  }
  return pairs;
}

bool is_header(const std::pair<std::string, std::string>& header) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  const bool is_name = std::ranges::all_of(header.first, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOthers.find(c) != kOthers.npos;
  });
  return is_name && std::ranges::none_of(header.second, [](char c) {
           return static_cast<unsigned char>(c) < ' ' && c != '\t';
         });
}

// base: "/v1/traces" follows it.
Result<Collector> read_endpoint(const Setting& setting, bool is_base) {
  constexpr std::string_view kScheme = "http://", kSafe = "https://";
  constexpr std::string_view kExpected = "http://host:port or http://host:port/path";
  std::string_view rest = setting.value;
  if (rest.starts_with(kSafe)) {
    return wrong(setting,
                 "http://…: https is not there; send to a collector on this machine, or in a "
                 "trusted network, that goes on with https");
  }
  if (!rest.starts_with(kScheme)) return wrong(setting, kExpected);
  rest.remove_prefix(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view place = rest.substr(0, slash);
  std::string path(rest.substr(slash));
  const bool is_plain = setting.value.find_first_of("?#@ \t\r\n") == std::string::npos;
  Collector collector{.url = setting.value};
  const size_t colon = place.rfind(':');
  if (colon != place.npos && !place.ends_with(']')) {
    const std::string_view digits = place.substr(colon + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), collector.port);
    const bool whole = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
    if (!whole || collector.port < 1 || collector.port > 65535) return wrong(setting, kExpected);
    place = place.substr(0, colon);
  } else {
    collector.port = 80;  // of http, as every URL without one
  }
  if (place.empty() || !is_plain) return wrong(setting, kExpected);
  if (is_base) {
    while (path.ends_with('/')) path.pop_back();
    path += "/v1/traces";
  } else if (path.empty()) {
    path = "/";
  }
  collector.path = path;
  collector.host = fmt::format("{}:{}", place, collector.port);
  const Result<std::string> address = base::numeric_address(std::string(place));
  WIDEEP_TRY(address.status().at(setting.name));
  collector.address = *address;
  return collector;
}

// Settings of what is not there.
Status check_rest(const Variables& variable) {
  const Setting protocol = read_exporter(variable, "PROTOCOL");
  if (protocol.is_set() && protocol.value != "http/json") {
    return wrong(protocol,
                 "http/json, the only one here, which collectors take at the same port "
                 "as http/protobuf (4318)");
  }
  const Setting compression = read_exporter(variable, "COMPRESSION");
  if (compression.is_set() && compression.value != "none") return wrong(compression, "none");
  const Setting exporter = read(variable, "OTEL_TRACES_EXPORTER");
  if (exporter.is_set() && exporter.value != "otlp") return wrong(exporter, "otlp or none");
  return {};
}

Result<Resource> read_resource(const Variables& variable, const std::string& version) {
  constexpr const char* kName = "service.name";
  std::vector<std::pair<std::string, std::string>> own = {{kName, "wideep"},
                                                          {"service.version", version}};
  WIDEEP_TRY_ASSIGN(auto pairs, read_pairs(read(variable, "OTEL_RESOURCE_ATTRIBUTES")));
  const Setting name = read(variable, "OTEL_SERVICE_NAME");
  if (name.is_set()) pairs.emplace_back(kName, name.value);  // the last wins
  for (auto& pair : pairs) {
    const auto found = std::ranges::find(own, pair.first, &decltype(own)::value_type::first);
    if (found != own.end()) {
      found->second = std::move(pair.second);
    } else {
      own.push_back(std::move(pair));
    }
  }
  Resource resource{.version = version};
  for (auto& [key, value] : own) resource.attributes.emplace_back(key, std::move(value));
  return resource;
}

}  // namespace

Result<std::optional<TraceSettings>> read_trace_settings(const Variables& variable,
                                                         const std::string& version) {
  const Setting own = read(variable, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
                base = read(variable, "OTEL_EXPORTER_OTLP_ENDPOINT");
  const Setting disabled = read(variable, "OTEL_SDK_DISABLED");
  const bool is_off = disabled.value.size() == 4 &&
                      std::ranges::equal(disabled.value, std::string_view("true"),
                                         [](char a, char b) { return (a | 0x20) == b; });
  const bool has_none = read(variable, "OTEL_TRACES_EXPORTER").value == "none";
  if (is_off || has_none || (!own.is_set() && !base.is_set())) {
    return std::optional<TraceSettings>();
  }
  TraceSettings settings;
  WIDEEP_TRY(check_rest(variable));
  WIDEEP_TRY_ASSIGN(settings.collector, read_endpoint(own.is_set() ? own : base, !own.is_set()));
  const Setting headers = read_exporter(variable, "HEADERS");
  WIDEEP_TRY_ASSIGN(settings.collector.headers, read_pairs(headers));
  if (!std::ranges::all_of(settings.collector.headers, is_header)) {
    return invalid_input(fmt::format(
        "{}: expected names and values that headers of HTTP may have, found others", headers.name));
  }
  if (const Setting timeout = read_exporter(variable, "TIMEOUT"); timeout.is_set()) {
    int& ms = settings.collector.timeout_ms;
    const std::string& text = timeout.value;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
    constexpr int kMaxMs = 600'000;
    if (error != std::errc() || end != text.data() + text.size() || ms < 1 || ms > kMaxMs) {
      return wrong(timeout, fmt::format("milliseconds, 1 to {}", kMaxMs));
    }
  }
  WIDEEP_TRY_ASSIGN(settings.resource, read_resource(variable, version));
  WIDEEP_TRY_ASSIGN(settings.sampler,
                    Sampler::parse(read(variable, "OTEL_TRACES_SAMPLER").value,
                                   read(variable, "OTEL_TRACES_SAMPLER_ARG").value));
  return std::optional<TraceSettings>(std::move(settings));
}

}  // namespace wideep::traces
