// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_context.h"

#include <algorithm>
#include <charconv>

namespace wideep::traces {
namespace {

constexpr size_t kLength = 55;

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c == '0'; });
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view header) {
  if (header.size() < kLength) return std::nullopt;
  const std::string_view version = header.substr(0, 2), trace = header.substr(3, 32),
                         span = header.substr(36, 16), flags = header.substr(53, 2);
  const bool has_dashes = header[2] == '-' && header[35] == '-' && header[52] == '-';
  if (!has_dashes || !is_hex(version) || !is_hex(trace) || !is_hex(span) || !is_hex(flags)) {
    return std::nullopt;
  }
  if (version == "ff" || is_zero(trace) || is_zero(span)) return std::nullopt;
  // Later versions may have more.
  if (header.size() > kLength && (version == "00" || header[kLength] != '-')) return std::nullopt;
  unsigned bits = 0;
  std::from_chars(flags.data(), flags.data() + flags.size(), bits, 16);
  return TraceContext{
      .trace_id = std::string(trace), .span_id = std::string(span), .is_sampled = (bits & 1) != 0};
}

std::string traceparent_of(const TraceContext& context) {
  return "00-" + context.trace_id + "-" + context.span_id + (context.is_sampled ? "-01" : "-00");
}

bool is_tracestate(std::string_view header) {
  return !header.empty() && header.size() <= 512 && std::ranges::count(header, ',') < 32 &&
         std::ranges::all_of(header, [](char c) { return (c >= ' ' && c <= '~') || c == '\t'; });
}

}  // namespace wideep::traces
