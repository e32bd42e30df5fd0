// SPDX-License-Identifier: Apache-2.0
//
// The cost and the gain of scheduling, each next to its limit:
//
//   - the time to decide what an iteration computes and to process its tokens, as a share of the
//     iteration, for several numbers of running requests: at most 1 %
//   - the time to the first token of a prompt that has a prefix in common with another, with and
//     without the pages that the other has computed
//   - requests in a small cache with each admission policy: guaranteed_no_evict, max_utilization
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_time.h"
#include "base/try.h"
#include "command_line/command_line.h"
#include "run/generate.h"

namespace wideep {
namespace {

using run::GenerateOptions;

constexpr double kLimit = 0.01;  // of an iteration

struct Options {
  std::string model = "models/reference";
  int requests = 64;
  int max_tokens = 100;
  std::vector<int> prompt_lines = {10, 40, 160};  // some 20 tokens each
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// Lines that are all different.
std::string lines(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    text += fmt::format("Line {} of the file says that {} times 3 is {}.\n", i, i, 3 * i);
  }
  return text;
}

GenerateOptions options_for(const Options& options) {
  GenerateOptions run;
  run.model_dir = options.model;
  run.parallel = parallel::parallel_config_for_ranks(1).value();
  run.max_tokens = options.max_tokens;
  return run;
}

using OnEvent = std::function<void(const run::Event&)>;

Result<run::GenerateReport> run_ranks(const GenerateOptions& options, const OnEvent& on_event) {
  WIDEEP_TRY_ASSIGN(run::GenerateReport report, run::generate(options, on_event));
  WIDEEP_TRY(report.ended);
  return report;
}

Status measure_cost(const Options& options) {
  fmt::print("requests   iterations   iteration ms   scheduling µs   share     limit\n");
  for (const bool reuse : {false, true}) {
    GenerateOptions run = options_for(options);
    run.parallel.max_batch_size = options.requests;
    run.parallel.kv_cache_config.enable_block_reuse = reuse;
    for (int i = 0; i < options.requests; ++i) run.prompts.push_back(lines(100 * i, 2));
    std::vector<double> iteration_ms, schedule_us, shares;
    WIDEEP_TRY_ASSIGN(const auto report, run_ranks(run, [&](const run::Event& event) {
                        const auto* each = std::get_if<run::Iteration>(&event);
                        if (each == nullptr) return;
                        const engine::IterationRecord& record = each->ranks[0];
                        if (record.queue.scheduled < options.requests) return;
                        iteration_ms.push_back(static_cast<double>(record.wall_ns) * 1e-6);
                        schedule_us.push_back(static_cast<double>(record.schedule_ns) * 1e-3);
                        shares.push_back(static_cast<double>(record.schedule_ns) /
                                         static_cast<double>(record.wall_ns));
                      }));
    const size_t count = shares.size();
    const double share = median_of(std::move(shares));
    fmt::print("{:>8}{:>13}{:>15.2f}{:>16.1f}{:>10.5f}{:>8} {}{}\n", options.requests, count,
               median_of(std::move(iteration_ms)), median_of(std::move(schedule_us)), share, kLimit,
               share <= kLimit ? "kept" : "MISSED", reuse ? " (pages shared)" : "");
  }
  return {};
}

// Time to the first token of the second of two prompts, computed one after the other.
Result<double> second_first_token_ms(const Options& options, int num_lines, bool reuse,
                                     int* prompt_tokens) {
  GenerateOptions run = options_for(options);
  run.max_tokens = 1;
  run.parallel.max_batch_size = 1;
  run.parallel.kv_cache_config.enable_block_reuse = reuse;
  for (const int question : {1, 2}) {
    run.prompts.push_back(lines(0, num_lines) + fmt::format("Question {}:", question));
  }
  int64_t first_ns = 0, second_ns = 0;
  WIDEEP_TRY_ASSIGN(const auto report, run_ranks(run, [&](const run::Event& event) {
                      const auto* token = std::get_if<run::Token>(&event);
                      if (token == nullptr) return;
                      (token->request_index == 0 ? first_ns : second_ns) = base::wall_ns();
                    }));
  *prompt_tokens = report.results[1].num_prompt_tokens;
  return static_cast<double>(second_ns - first_ns) * 1e-6;
}

Status measure_reuse(const Options& options) {
  fmt::print("\nprompt tokens   first token ms   with shared pages   times faster\n");
  for (const int num_lines : options.prompt_lines) {
    std::vector<double> without, with;
    int tokens = 0;
    for (int i = 0; i < 3; ++i) {
      WIDEEP_TRY_ASSIGN(const double alone,
                        second_first_token_ms(options, num_lines, false, &tokens));
      WIDEEP_TRY_ASSIGN(const double shared,
                        second_first_token_ms(options, num_lines, true, &tokens));
      without.push_back(alone);
      with.push_back(shared);
    }
    const double a = median_of(std::move(without)), b = median_of(std::move(with));
    fmt::print("{:>13}{:>17.1f}{:>20.1f}{:>15.1f}\n", tokens, a, b, a / b);
  }
  return {};
}

Status measure_policies(const Options& options) {
  fmt::print("\npolicy                 tokens/s   running   pauses   pages of the cache\n");
  for (const char* policy : {"GUARANTEED_NO_EVICT", "MAX_UTILIZATION"}) {
    GenerateOptions run = options_for(options);
    run.max_tokens = 4 * options.max_tokens;
    run.parallel.scheduler_config.capacity_scheduler_policy = policy;
    run.parallel.max_batch_size = options.requests;
    run.parallel.kv_cache_config.max_tokens = options.requests * 2 * kernels::kPageTokens;
    for (int i = 0; i < options.requests; ++i) run.prompts.push_back(lines(100 * i, 2));
    double running = 0.0;
    int64_t iterations = 0;
    engine::QueueRecord last;
    WIDEEP_TRY_ASSIGN(const auto report, run_ranks(run, [&](const run::Event& event) {
                        const auto* each = std::get_if<run::Iteration>(&event);
                        if (each == nullptr) return;
                        last = each->ranks[0].queue;
                        running += last.scheduled;
                        ++iterations;
                      }));
    size_t tokens = 0;
    for (const auto& result : report.results) tokens += result.tokens.size();
    fmt::print("{:<20}{:>11.0f}{:>10.1f}{:>9}{:>21}\n", policy,
               static_cast<double>(tokens) / report.wall_seconds,
               running / static_cast<double>(iterations), last.pauses, last.max_pages);
  }
  return {};
}

Status measure(const Options& options) {
  WIDEEP_TRY(measure_cost(options));
  WIDEEP_TRY(measure_reuse(options));
  return measure_policies(options);
}

}  // namespace
}  // namespace wideep

int main(int argc, char** argv) {
  wideep::Options options;
  wideep::command_line::Program program(
      "Measures the cost of scheduling, and the gain of shared pages and of pausing requests");
  program.add_option("--model", options.model, "Model directory").show_default();
  program
      .add_option("--requests", options.requests, "Numbers of requests that run at the same time")
      .show_default();
  program.add_option("--max-tokens", options.max_tokens, "Tokens to generate per request")
      .show_default();
  program
      .add_option("--prompt-lines", options.prompt_lines, "Lines that two prompts have in common")
      .separate_values_by(',')
      .show_default();
  if (const auto code = program.parse_main(argc, argv)) return *code;
  const wideep::Status status = wideep::measure(options);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", status.message());
  return status.exit_code();
}
