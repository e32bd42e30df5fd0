// SPDX-License-Identifier: Apache-2.0
#include "bench/serving_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/cpu_time.h"

namespace wideep::bench {
namespace {

using nlohmann::json;

double seconds_between(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

// One request, as its client saw it.
struct Seen {
  int64_t start_ns = 0;
  std::vector<int64_t> text_ns;  // of events with text
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  Status status;
};

std::string body_of(const ServingOptions& options, const DatasetRequest& request) {
  json body = {{"model", options.model},
               {"max_tokens", request.output_tokens},
               {"temperature", 0},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  std::visit([&](const auto& prompt) { body["prompt"] = prompt; }, request.prompt);
  if (options.ignore_eos) body["ignore_eos"] = true;
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

void take_event(std::string_view data, Seen& seen) {
  const int64_t now = base::wall_ns();
  const json event = json::parse(data, nullptr, false);
  if (!event.is_object()) return;  // [DONE]
  const json choices = event.value("choices", json::array());
  if (!choices.empty() && !choices[0].value("text", "").empty()) seen.text_ns.push_back(now);
  const json usage = event.value("usage", json());
  if (!usage.is_object()) return;
  seen.input_tokens = usage.value("prompt_tokens", int64_t{0});
  seen.output_tokens = usage.value("completion_tokens", int64_t{0});
}

Seen ask(const ServingOptions& options, const DatasetRequest& request) {
  const std::string body = body_of(options, request);
  Seen seen{.start_ns = base::wall_ns()};
  seen.status = post_for_events(options.address, "/v1/completions", body, options.patience,
                                [&](std::string_view data) { take_event(data, seen); });
  if (seen.status.ok() && seen.text_ns.empty()) seen.status = failed("a reply without any text");
  // A server that does not count sends a token an event.
  if (seen.output_tokens == 0) seen.output_tokens = static_cast<int64_t>(seen.text_ns.size());
  return seen;
}

ServingReport report_of(const std::vector<Seen>& all, int64_t start_ns, int64_t end_ns) {
  ServingReport report{.seconds = seconds_between(start_ns, end_ns)};
  std::vector<double> ttft, tpot, itl, e2el;
  for (const Seen& seen : all) {
    if (!seen.status.ok()) {
      report.failures.push_back(seen.status.message());
      continue;
    }
    ++report.completed;
    report.input_tokens += seen.input_tokens;
    report.output_tokens += seen.output_tokens;
    ttft.push_back(seconds_between(seen.start_ns, seen.text_ns.front()));
    e2el.push_back(seconds_between(seen.start_ns, seen.text_ns.back()));
    if (seen.output_tokens > 1) {
      tpot.push_back((e2el.back() - ttft.back()) / static_cast<double>(seen.output_tokens - 1));
    }
    for (size_t i = 1; i < seen.text_ns.size(); ++i) {
      itl.push_back(seconds_between(seen.text_ns[i - 1], seen.text_ns[i]));
    }
  }
  report.ttft = percentiles_of(std::move(ttft));
  report.tpot = percentiles_of(std::move(tpot));
  report.itl = percentiles_of(std::move(itl));
  report.e2el = percentiles_of(std::move(e2el));
  return report;
}

}  // namespace

ServingReport run_serving_bench(const ServingOptions& options,
                                const std::function<void()>& on_done) {
  const std::vector<double> times =
      arrival_times(options.arrivals, static_cast<int>(options.requests.size()));
  std::vector<Seen> seen(options.requests.size());
  std::atomic<size_t> next{0};
  std::mutex done;
  const int64_t start_ns = base::wall_ns();
  const auto client = [&] {
    for (size_t i = next++; i < options.requests.size(); i = next++) {
      const double early = times[i] - seconds_between(start_ns, base::wall_ns());
      if (early > 0) std::this_thread::sleep_for(std::chrono::duration<double>(early));
      seen[i] = ask(options, options.requests[i]);
      const std::lock_guard lock(done);
      if (on_done) on_done();
    }
  };
  const size_t clients = std::min(static_cast<size_t>(options.max_concurrency), seen.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients; ++i) threads.emplace_back(client);
  for (std::thread& thread : threads) thread.join();
  return report_of(seen, start_ns, base::wall_ns());
}

}  // namespace wideep::bench
