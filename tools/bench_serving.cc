// SPDX-License-Identifier: Apache-2.0
//
// wideep bench serving: measures a server with OpenAI's completions endpoint, as its clients see
// it.
//
// Without a dataset prompts are random ids, so that no tokenizer is needed and a server of any kind
// can be measured. Failures do not end the run, but make the command fail at its end.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "base/progress.h"
#include "base/try.h"
#include "commands.h"
#include "formats/json_text.h"
#include "load_options.h"
#include "measure/serving/serving_run.h"

namespace wideep::tools {
namespace {

struct Options {
  std::string base_url = "http://127.0.0.1:8000";
  std::string api_key;
  std::string dataset;
  int num_prompts = 64;
  int input_tokens = 128;
  int output_tokens = 64;
  int min_id = 100;
  int num_ids = 1000;
  bool stop_at_eos = false;
  bool json = false;
  measure::ServingOptions bench;
};

std::string row(const char* name, const base::Percentiles& of) {
  return fmt::format("{:<28}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", name, of.mean * 1e3,
                     of.median * 1e3, of.p90 * 1e3, of.p99 * 1e3);
}

std::string text_of(const measure::ServingReport& report) {
  return fmt::format(
             "requests                    {:>10} completed, {} failed\n"
             "duration                    {:>10.2f} s\n"
             "tokens                      {:>10} in, {} out\n"
             "requests                    {:>10.2f} /s\n"
             "output tokens               {:>10.1f} /s\n"
             "all tokens                  {:>10.1f} /s\n\n"
             "{:<28}{:>10}{:>10}{:>10}{:>10}\n",
             report.completed, report.failures.size(), report.seconds, report.input_tokens,
             report.output_tokens, report.requests_per_second(), report.output_tokens_per_second(),
             report.all_tokens_per_second(), "ms", "mean", "median", "p90", "p99") +
         row("time to first token", report.ttft) + row("time per output token", report.tpot) +
         row("inter-token latency", report.itl) + row("end-to-end latency", report.e2el);
}

nlohmann::ordered_json json_of(const base::Percentiles& of) {
  return {{"mean", of.mean}, {"median", of.median}, {"p90", of.p90}, {"p99", of.p99}};
}

nlohmann::ordered_json json_of(const measure::ServingReport& report) {
  return {{"completed", report.completed},
          {"failed", report.failures.size()},
          {"duration_seconds", report.seconds},
          {"input_tokens", report.input_tokens},
          {"output_tokens", report.output_tokens},
          {"requests_per_second", report.requests_per_second()},
          {"output_tokens_per_second", report.output_tokens_per_second()},
          {"all_tokens_per_second", report.all_tokens_per_second()},
          {"ttft_seconds", json_of(report.ttft)},
          {"tpot_seconds", json_of(report.tpot)},
          {"itl_seconds", json_of(report.itl)},
          {"e2el_seconds", json_of(report.e2el)}};
}

Result<measure::ServingOptions> bench_options(const Options& options) {
  measure::ServingOptions result = options.bench;
  WIDEEP_TRY_ASSIGN(result.address, measure::parse_address(options.base_url));
  result.address.api_key = options.api_key;
  if (const char* key = std::getenv("WIDEEP_API_KEY"); key != nullptr && options.api_key.empty()) {
    result.address.api_key = key;
  }
  // A base URL may end in /v1, as clients of OpenAI write it.
  if (result.address.path.ends_with("/v1"))
    result.address.path.resize(result.address.path.size() - 3);
  result.ignore_eos = !options.stop_at_eos;
  if (options.dataset.empty()) {
    result.requests =
        measure::random_dataset({.count = options.num_prompts,
                                 .input = measure::NormalLength{double(options.input_tokens), 0},
                                 .output = measure::NormalLength{double(options.output_tokens), 0},
                                 .min_id = options.min_id,
                                 .num_ids = options.num_ids,
                                 .seed = result.arrivals.seed});
    return result;
  }
  WIDEEP_TRY_ASSIGN(result.requests, measure::read_dataset(options.dataset));
  if (static_cast<size_t>(options.num_prompts) < result.requests.size()) {
    result.requests.resize(static_cast<size_t>(options.num_prompts));
  }
  return result;
}

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const measure::ServingOptions bench, bench_options(options));
  const auto serve = [&] {
    base::Progress progress("serving", static_cast<int64_t>(bench.requests.size()), "requests");
    return measure::run_serving_bench(bench, [&] { progress.step(); });
  };
  WIDEEP_TRY_ASSIGN(const measure::ServingReport report, serve());
  if (report.completed == 0) {
    return failed(
        fmt::format("no request succeeded; the first failed with: {}", report.failures.front()));
  }
  if (options.json) {
    std::puts(formats::json_text(json_of(report), 2).c_str());
  } else {
    std::fputs(text_of(report).c_str(), stdout);
  }
  if (report.failures.empty()) return {};
  return failed(fmt::format("{} requests failed; the first with: {}", report.failures.size(),
                            report.failures.front()));
}

void add_what_options(command_line::Command command, Options& options) {
  command.add_option("--base-url", options.base_url, "Address of the server, with or without /v1")
      .show_default();
  command.add_option("--model", options.bench.model, "Name of the model on the server").required();
  command.add_option("--api-key", options.api_key,
                     "Key that the server expects (also WIDEEP_API_KEY)");
  const command_line::Option dataset =
      command.add_option("--dataset", options.dataset,
                         "JSON lines with \"prompt\" or \"input_ids\", and \"output_tokens\" "
                         "(default: random token ids)");
  command
      .add_option("--num-prompts", options.num_prompts,
                  "Number of requests; with --dataset the most to use of it")
      .range(1, 1 << 24)
      .show_default();
  command.add_option("--random-input-len", options.input_tokens, "Tokens of a random prompt")
      .range(1, 1 << 24)
      .excludes(dataset)
      .show_default();
  command
      .add_option("--random-output-len", options.output_tokens,
                  "Tokens to generate for each random prompt")
      .range(1, 1 << 24)
      .excludes(dataset)
      .show_default();
  command.add_option("--random-least-id", options.min_id, "Smallest id of random tokens")
      .range(0, 1 << 24)
      .excludes(dataset)
      .show_default();
  command
      .add_option("--random-num-ids", options.num_ids, "Number of different ids of random tokens")
      .range(1, 1 << 24)
      .excludes(dataset)
      .show_default();
}

void add_how_options(command_line::Command command, Options& options) {
  command
      .add_option("--max-concurrency", options.bench.max_concurrency,
                  "Most requests at the same time")
      .range(1, 4096)
      .show_default();
  command
      .add_option("--request-rate", options.bench.arrivals.request_rate,
                  "Requests per second, which arrive as a Poisson process; inf: all at once")
      .check(check_request_rate)
      .show_default();
  command.add_option("--seed", options.bench.arrivals.seed,
                     "Seed of arrival times and of random prompts");
  command.add_flag("--stop-at-eos", options.stop_at_eos,
                   "Let answers end at the end token (default: ask the server to ignore it, which "
                   "not every server supports)");
  command.add_flag("--json", options.json, "Only JSON on stdout");
}

}  // namespace

void add_bench_serving_command(command_line::Command bench, Status* status) {
  const command_line::Command command =
      bench.add_command("serving", "Measure a running server as its clients see it");
  auto options = std::make_shared<Options>();
  add_what_options(command, *options);
  add_how_options(command, *options);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
