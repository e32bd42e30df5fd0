// SPDX-License-Identifier: Apache-2.0
#include "server/access_log.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace wideep::server {
namespace {

// As nginx and others say that a client left before its reply had begun.
constexpr int kClientLeft = 499;
constexpr size_t kMaxPath = 200;

std::string seconds_between(int64_t begin_ns, int64_t end_ns) {
  return fmt::format("{:.6f}", static_cast<double>(end_ns - begin_ns) * 1e-9);
}

}  // namespace

std::vector<log::Field> access_fields(const RequestRecord& record) {
  std::vector<log::Field> fields;
  const auto add_text = [&](const char* name, std::string value) {
    fields.push_back({.name = name, .value = std::move(value)});
  };
  const auto add_number = [&](const char* name, std::string value) {
    fields.push_back({.name = name, .value = std::move(value), .is_number = true});
  };
  add_text("request_id", record.id);
  add_text("client", record.client);
  add_text("method", base::printable(record.method, 20));
  add_text("path", base::printable(record.path, kMaxPath));
  add_number("status", std::to_string(record.status > 0 ? record.status : kClientLeft));
  if (!record.is_whole) add_number("cut", "true");
  if (!record.error.empty()) add_text("error", record.error);
  if (!record.replica.empty()) add_text("replica", record.replica);
  if (record.prefill) {
    add_text("prefill_replica", record.prefill->replica);
    if (record.prefill->end_ns > 0) {
      add_number("prefill_seconds",
                 seconds_between(record.prefill->begin_ns, record.prefill->end_ns));
    }
  }
  if (record.text && record.text->prompt_tokens >= 0) {
    add_number("prompt_tokens", std::to_string(record.text->prompt_tokens));
    add_number("cached_tokens", std::to_string(record.text->cached_tokens));
    add_number("generated_tokens", std::to_string(record.text->generated_tokens));
    if (record.text->first_token_ns > 0 && !record.text->is_resumed) {
      add_number("time_to_first_token_seconds",
                 seconds_between(record.came_ns, record.text->first_token_ns));
    }
  }
  if (record.trace) add_text("trace_id", record.trace->own.trace_id);
  add_number("seconds", seconds_between(record.came_ns, record.ended_ns));
  return fields;
}

void log_access(const RequestRecord& record) {
  const std::vector<log::Field> fields = access_fields(record);
  log::write({.level = log::Level::kInfo, .text = "access", .fields = fields});
}

}  // namespace wideep::server
