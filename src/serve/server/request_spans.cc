// SPDX-License-Identifier: Apache-2.0
//
// Attributes have the names of OpenTelemetry's conventions for HTTP and for generative AI, and those
// of vLLM for latencies.
#include "server/request_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/random_hex.h"

namespace wideep::server {
namespace {

using traces::Attributes;
using traces::Span;

constexpr size_t kMaxPath = 200;  // bytes: thousands of spans may wait

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// "127.0.0.1:4000", "[::1]:4000".
void add_client(std::string_view client, Attributes& attributes) {
  const size_t colon = client.rfind(':');
  if (colon == client.npos) return;
  std::string_view host = client.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  int64_t port = 0;
  std::from_chars(client.data() + colon + 1, client.data() + client.size(), port);
  attributes.emplace_back("client.address", std::string(host));
  attributes.emplace_back("client.port", port);
}

void add_text(const RequestRecord& record, Attributes& attributes) {
  const TextWork& text = *record.text;
  attributes.emplace_back("gen_ai.operation.name", text.operation);
  attributes.emplace_back("gen_ai.provider.name", std::string("wideep"));
  attributes.emplace_back("gen_ai.request.model", text.model);
  attributes.emplace_back("gen_ai.response.model", text.model);
  if (text.prompt_tokens < 0) return;  // refused
  attributes.emplace_back("gen_ai.usage.input_tokens", text.prompt_tokens);
  attributes.emplace_back("gen_ai.usage.output_tokens", text.generated_tokens);
  attributes.emplace_back("gen_ai.usage.cache_read.input_tokens", text.cached_tokens);
  attributes.emplace_back("gen_ai.usage.cache_creation.input_tokens", text.written_tokens);
  if (!text.finish_reasons.empty()) {
    attributes.emplace_back("gen_ai.response.finish_reasons", text.finish_reasons);
  }
  attributes.emplace_back("gen_ai.latency.e2e", seconds(record.ended_ns - record.came_ns));
  if (text.is_resumed) {
    attributes.emplace_back("wideep.resumed", true);
    return;
  }
  const auto add_latency = [&](const char* name, int64_t begin_ns, int64_t end_ns) {
    if (begin_ns == 0 || end_ns == 0) return;
    attributes.emplace_back(name, seconds(std::max<int64_t>(0, end_ns - begin_ns)));
  };
  add_latency("gen_ai.latency.time_in_queue", text.submitted_ns, text.admitted_ns);
  add_latency("gen_ai.latency.time_in_model_prefill", text.admitted_ns, text.first_token_ns);
  add_latency("gen_ai.latency.time_in_model_decode", text.first_token_ns, text.last_token_ns);
  add_latency("gen_ai.latency.time_to_first_token", record.came_ns, text.first_token_ns);
}

Span server_span(const RequestRecord& record) {
  Span span{.trace_id = record.trace->own.trace_id,
            .span_id = record.trace->own.span_id,
            .parent_id = record.trace->parent_id,
            .state = record.trace->state,
            .name = record.text ? record.text->operation + " " + record.text->model : record.method,
            .kind = Span::kServer,
            .begin_ns = record.came_ns,
            .end_ns = record.ended_ns};
  span.attributes = {{"http.request.method", record.method},
                     {"url.path", record.path.substr(0, kMaxPath)}};
  if (record.status > 0) {
    span.attributes.emplace_back("http.response.status_code", int64_t{record.status});
  }
  add_client(record.client, span.attributes);
  span.attributes.emplace_back("gen_ai.request.id", record.id);
  if (!record.replica.empty()) span.attributes.emplace_back("wideep.replica", record.replica);
  if (!record.is_whole) span.attributes.emplace_back("wideep.cut", true);
  if (record.text) add_text(record, span.attributes);
  if (!record.error.empty() || record.status >= 500) {
    span.error = record.error.empty() ? fmt::format("status {}", record.status) : record.error;
    span.attributes.emplace_back(
        "error.type", record.error.empty() ? std::to_string(record.status) : record.error);
  }
  return span;
}

// Of a router: the request to the server that computed the prompt, whose own spans are below it.
Span prefill_span(const RequestRecord& record) {
  const PrefillPart& part = *record.prefill;
  Span span{.trace_id = record.trace->own.trace_id,
            .span_id = part.span_id,
            .parent_id = record.trace->own.span_id,
            .state = record.trace->state,
            .name = "prefill",
            .begin_ns = part.begin_ns,
            .end_ns = std::max(part.begin_ns, part.end_ns > 0 ? part.end_ns : record.ended_ns)};
  span.attributes = {{"wideep.replica", part.replica}};
  return span;
}

}  // namespace

std::vector<Span> spans_of(const RequestRecord& record, int64_t to_unix_ns) {
  std::vector<Span> spans = {server_span(record)};
  if (record.prefill) spans.push_back(prefill_span(record));
  const auto add_phase = [&](const char* name, int64_t begin_ns, int64_t end_ns) {
    if (begin_ns == 0) return;
    if (end_ns == 0) end_ns = record.ended_ns;
    spans.push_back({.trace_id = record.trace->own.trace_id,
                     .span_id = base::random_hex(8),
                     .parent_id = record.trace->own.span_id,
                     .state = record.trace->state,
                     .name = name,
                     .begin_ns = begin_ns,
                     .end_ns = std::max(begin_ns, end_ns)});
  };
  if (record.text && record.text->submitted_ns > 0 && !record.text->is_resumed) {
    const TextWork& text = *record.text;
    add_phase("prepare", record.came_ns, text.submitted_ns);
    // A token without word of its prompt's begin: nobody knows where its queue has ended.
    if (text.admitted_ns > 0 || text.first_token_ns == 0) {
      add_phase("queue", text.submitted_ns, text.admitted_ns);
    }
    add_phase("prefill", text.admitted_ns, text.first_token_ns);
    add_phase("decode", text.first_token_ns, text.last_token_ns);
    add_phase("transfer", text.last_token_ns, record.ended_ns);
  }
  for (Span& span : spans) {
    span.begin_ns += to_unix_ns;
    span.end_ns += to_unix_ns;
  }
  return spans;
}

}  // namespace wideep::server
