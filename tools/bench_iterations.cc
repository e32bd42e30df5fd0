// SPDX-License-Identifier: Apache-2.0
// wideep bench iterations: a summary of several iteration logs, one line per log.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "commands.h"
#include "measure/serving/iteration_report.h"
#include "plan_output.h"

namespace wideep::tools {
namespace {

using measure::IterationLogSummary;
using nlohmann::ordered_json;

struct Options {
  std::vector<std::string> logs;
  bool json = false;
};

std::string text_of(const std::vector<IterationLogSummary>& logs) {
  size_t width = 4;
  for (const IterationLogSummary& log : logs) width = std::max(width, log.name.size());
  std::string text = fmt::format(
      "{:<{}}  active  iterations  tokens/s   ms: median      p90      p99      max  "
      "imbalance   moves       MiB\n",
      "log", width);
  for (const IterationLogSummary& log : logs) {
    text += fmt::format(
        "{:<{}}  {:6.1f}  {:10}  {:8.1f}  {:10.2f}{:9.2f}{:9.2f}{:9.2f}  {:9.3f}  {:6}  {:8.1f}\n",
        log.name, width, log.active_requests, log.iterations, log.tokens_per_second(),
        log.latency_ms.median, log.latency_ms.p90, log.latency_ms.p99, log.longest_ms,
        log.imbalance_ratio, log.expert_moves, static_cast<double>(log.moved_bytes) / (1 << 20));
  }
  return text;
}

ordered_json json_of(const std::vector<IterationLogSummary>& logs) {
  ordered_json all = ordered_json::array();
  for (const IterationLogSummary& log : logs) {
    all.push_back({{"name", log.name},
                   {"iterations", log.iterations},
                   {"active_requests", log.active_requests},
                   {"seconds", log.seconds},
                   {"prompt_tokens", log.prompt_tokens},
                   {"generated_tokens", log.generated_tokens},
                   {"tokens_per_second", log.tokens_per_second()},
                   {"iteration_ms",
                    {{"mean", log.latency_ms.mean},
                     {"median", log.latency_ms.median},
                     {"p90", log.latency_ms.p90},
                     {"p99", log.latency_ms.p99},
                     {"max", log.longest_ms}}},
                   {"imbalance_ratio", log.imbalance_ratio},
                   {"critical_path_ms", log.critical_path_ms},
                   {"expert_moves", log.expert_moves},
                   {"moved_bytes", log.moved_bytes}});
  }
  return {{"logs", std::move(all)}};
}

Status run(const Options& options) {
  std::vector<IterationLogSummary> logs;
  for (const std::string& path : options.logs) {
    WIDEEP_TRY_ASSIGN(IterationLogSummary log, measure::summarize_iterations(path));
    logs.push_back(std::move(log));
  }
  std::fputs((options.json ? json_text(json_of(logs)) : text_of(logs)).c_str(), stdout);
  return {};
}

}  // namespace

void add_bench_iterations_command(command_line::Command bench, Status* status) {
  const command_line::Command command =
      bench.add_command("iterations", "Summarise logs of --iteration-log, one line per log");
  auto options = std::make_shared<Options>();
  command
      .add_option("logs", options->logs,
                  "Files written by --iteration-log, for example one for each load")
      .path()
      .required();
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
