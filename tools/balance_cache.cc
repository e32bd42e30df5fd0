// SPDX-License-Identifier: Apache-2.0
//
// wideep balance cache: how often the experts that a router chooses would be in memory, where a
// model is larger than memory.
//
// A trace is divided by requests, and decoded as a server would: as many requests at once as
// --batch says. A file of ids without requests is cut into some. Statistics have counts only, so
// they are judged as if tokens came one by one, and only by policies that need no order.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <utility>

#include "base/try.h"
#include "cache_output.h"
#include "commands.h"
#include "expert_bytes.h"
#include "judged_requests.h"
#include "online/request_stream.h"
#include "online/request_trace.h"
#include "simulate_inputs.h"
#include "statistics_options.h"

namespace wideep::tools {
namespace {

using online::DividedTrace;
using online::RequestTrace;
using residency::BudgetHits;

struct CacheCommand {
  StatisticsOptions statistics;
  std::string trace;  // directory
  std::string holdout;
  std::vector<std::string> domains;
  std::vector<int> batches;  // empty: 1
  std::vector<std::string> shares;
  std::vector<std::string> gigabytes;
  ExpertBytesOptions bytes;
  bool by_layer = false;
  bool json = false;

  bool has_trace() const { return !trace.empty() || is_trace(statistics.path); }
  const std::string& recording() const { return trace.empty() ? statistics.path : trace; }
};

Status check_recording(const CacheCommand& command) {
  if (command.trace.empty() == command.statistics.path.empty()) {
    return invalid_input(
        "expected either --stats (statistics, or a per-token trace) or --trace (a directory of "
        "requests)");
  }
  const StatisticsOptions& statistics = command.statistics;
  if (statistics.ep_size) {
    return invalid_input(
        "--ep-size: has no effect, the memory is that of all ranks together; leave it out");
  }
  if (!command.has_trace() && !command.batches.empty()) {
    return invalid_input("--batch: has no effect on counts, which have no order; leave it out");
  }
  if (command.trace.empty() && !command.domains.empty()) {
    return invalid_input("--domains: has no effect without --trace; leave it out");
  }
  if (command.has_trace() &&
      (statistics.iter_start || statistics.iter_stop || statistics.trace.window)) {
    return invalid_input(
        "--iter-start, --iter-stop, --trace-window: have no effect on a trace, which is divided by "
        "requests; leave them out");
  }
  return {};
}

// From 0 to max. Errors name the option.
Result<std::vector<double>> parse_numbers(const char* option, const char* expected, double max,
                                          const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    double number = 0.0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || !(number >= 0.0 && number <= max)) {
      return invalid_input(fmt::format("{}: expected {}, found {}", option, expected, text));
    }
    numbers.push_back(number);
  }
  return numbers;
}

// In records, of `judged`'s model.
Result<std::vector<int>> choose_budgets(const CacheCommand& command, const JudgedCache& judged) {
  const std::vector<std::string> usual = {"0.25", "0.5", "0.75"};
  const bool none = command.shares.empty() && command.gigabytes.empty();
  WIDEEP_TRY_ASSIGN(const auto shares,
                    parse_numbers("--experts-in-memory", "shares of the experts from 0 to 1", 1.0,
                                  none ? usual : command.shares));
  WIDEEP_TRY_ASSIGN(const auto gigabytes,
                    parse_numbers("--gb", "gigabytes of memory for experts from 0 to 10^9", 1e9,
                                  command.gigabytes));
  if (!gigabytes.empty() && !judged.bytes_per_expert) {
    return invalid_input(
        "--gb: needs the size of an expert; give --model DIR or --model-bytes-per-expert");
  }
  std::vector<int> budgets;
  for (const double share : shares) {
    budgets.push_back(static_cast<int>(std::lround(share * judged.num_records())));
  }
  for (const double each : gigabytes) {
    const double records = std::floor(each * 1e9 / *judged.bytes_per_expert);
    budgets.push_back(
        static_cast<int>(std::min(records, static_cast<double>(judged.num_records()))));
  }
  return budgets;
}

Result<DividedTrace> read_directory(const CacheCommand& command,
                                    const recordings::TraceShape& shape) {
  const std::optional<double> fraction =
      command.holdout.empty() ? kHeldOutRequests : holdout_fraction(command.holdout);
  if (!fraction) {
    return invalid_input(
        fmt::format("--holdout: expected a fraction of the requests between 0 and 1, found {}",
                    command.holdout));
  }
  WIDEEP_TRY_ASSIGN(RequestTrace trace, online::read_request_trace(command.trace, shape));
  Result<DividedTrace> divided = online::hold_out_requests(std::move(trace), *fraction);
  if (!divided.ok()) return divided.status().at(command.trace + ": --holdout");
  return divided;
}

// How many requests of these domains there are; of all, if none is named.
int count_requests(const RequestTrace& trace, const std::vector<int>& domains) {
  if (domains.empty()) return static_cast<int>(trace.requests.size());
  return static_cast<int>(std::ranges::count_if(trace.requests, [&](const auto& request) {
    return std::ranges::find(domains, request.domain) != domains.end();
  }));
}

Status judge_trace(const CacheCommand& command, JudgedCache* judged) {
  WIDEEP_TRY_ASSIGN(const recordings::TraceShape shape,
                    trace_shape(command.statistics.trace, command.recording()));
  WIDEEP_TRY_ASSIGN(const DividedTrace trace,
                    command.trace.empty()
                        ? read_divided_ids(command.statistics, command.holdout, shape)
                        : read_directory(command, shape));
  const Result<std::vector<int>> domains = online::find_domains(trace.earlier, command.domains);
  if (!domains.ok()) return domains.status().at("--domains");
  judged->num_experts = shape.num_experts;
  judged->layers.resize(static_cast<size_t>(shape.num_layers));
  std::iota(judged->layers.begin(), judged->layers.end(), shape.first_layer);
  WIDEEP_TRY_ASSIGN(judged->bytes_per_expert,
                    choose_expert_bytes(command.bytes, shape.num_experts, judged->layers));
  WIDEEP_TRY_ASSIGN(const std::vector<int> budgets, choose_budgets(command, *judged));
  const int learned = count_requests(trace.earlier, *domains);
  const int later = count_requests(trace.later, *domains);
  judged->text = fmt::format("learned from {} requests, judged on {} later ones", learned, later);
  for (const int batch : command.batches.empty() ? std::vector<int>{1} : command.batches) {
    if (batch > std::min(learned, later)) {
      return invalid_input(fmt::format(
          "--batch: expected 1 to {}, the requests that are learned from or judged on, found {}",
          std::min(learned, later), batch));
    }
    const online::StreamOptions stream{
        .domains = *domains, .in_flight = batch, .iteration_tokens = batch};
    for (BudgetHits& hits : judge_requests(trace, stream, budgets)) {
      judged->budgets.push_back({.batch = batch, .hits = std::move(hits)});
    }
  }
  return {};
}

Status judge_statistics(const CacheCommand& command, JudgedCache* judged) {
  WIDEEP_TRY_ASSIGN(const Loads loads, read_loads(command.statistics, command.holdout));
  judged->num_experts = loads.judged.num_experts;
  judged->layers = loads.judged.layers;
  judged->text = loads.planned.load == loads.judged.load
                     ? "learned from the counts that are judged: fixed is the oracle"
                     : "learned from the earlier counts, judged on the held-out ones";
  WIDEEP_TRY_ASSIGN(judged->bytes_per_expert,
                    choose_expert_bytes(command.bytes, judged->num_experts, judged->layers));
  WIDEEP_TRY_ASSIGN(const std::vector<int> budgets, choose_budgets(command, *judged));
  for (BudgetHits& hits : residency::judge_counts(loads.planned, loads.judged, budgets)) {
    judged->budgets.push_back({.hits = std::move(hits)});
  }
  return {};
}

Status run(const CacheCommand& command) {
  WIDEEP_TRY(check_recording(command));
  JudgedCache judged{.recording = command.recording(), .by_layer = command.by_layer};
  WIDEEP_TRY(command.has_trace() ? judge_trace(command, &judged)
                                 : judge_statistics(command, &judged));
  std::fputs((command.json ? cache_json(judged) : cache_table(judged)).c_str(), stdout);
  return {};
}

}  // namespace

void add_balance_cache_command(command_line::Command balance, Status* status) {
  auto command = std::make_shared<CacheCommand>();
  const command_line::Command app = balance.add_command(
      "cache",
      "How often the experts that are chosen would be in memory, if not all fit: hit rates by "
      "policy");
  add_statistics_options(app, &command->statistics, /*optional=*/true);
  app.add_option("--trace", command->trace,
                 "Instead of --stats: a directory of requests as `balance replay` reads it")
      .path();
  app.add_option("--domains", command->domains,
                 "With --trace: kinds of text, one after the other: A,B,C (default: all)")
      .separate_values_by(',');
  app.add_option("--holdout", command->holdout,
                 "Learn from what comes before, judge on these: the last FRACTION of the requests, "
                 "or of the iterations of statistics, or a second FILE (default: 0.5)");
  app.add_option("--batch", command->batches,
                 "For a trace: requests that are decoded at once, several numbers: A,B,C (default: "
                 "1)")
      .separate_values_by(',')
      .range(1, 4096);
  app.add_option("--experts-in-memory", command->shares,
                 "Shares of the experts that fit in memory: A,B,C (default: 0.25,0.5,0.75)")
      .separate_values_by(',');
  app.add_option("--gb", command->gigabytes,
                 "The same as gigabytes (10^9 bytes) for experts: A,B,C; with "
                 "--model-bytes-per-expert or --model")
      .separate_values_by(',');
  add_expert_bytes_options(app, &command->bytes, "of which --gb holds some");
  app.add_flag("--by-layer", command->by_layer, "A line for each layer");
  app.add_flag("--json", command->json, "Print JSON");
  app.on_run([command, status] { *status = run(*command); });
}

}  // namespace wideep::tools
