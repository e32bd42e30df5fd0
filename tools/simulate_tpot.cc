// SPDX-License-Identifier: Apache-2.0
//
// wideep simulate tpot: which numbers of ranks that share the experts hold a time between tokens,
// and what that costs.
//
// All layouts are weighed as `advise` does, and then grouped by their EP size: of each the fastest,
// which shows whether the limit can be held at all, and the best within the limit.
#include <fmt/format.h>

#include <memory>

#include "advise/what_if.h"
#include "base/try.h"
#include "commands.h"
#include "precision_option.h"
#include "simulate_inputs.h"
#include "what_if_output.h"

namespace wideep::tools {
namespace {

struct TpotOptions {
  std::string model, hardware, holdout;
  StatisticsOptions statistics;
  advise::Workload workload;
  advise::Choices choices;
  double tpot_ms = 50.0;
  PrecisionOption precision;
  WhatIfOutput output;
};

std::vector<nlohmann::ordered_json> row_of(const advise::EpSize& size) {
  const advise::Candidate& fastest = size.fastest;
  std::vector<nlohmann::ordered_json> row = {size.ep, fastest.tpot * 1e3};
  if (!size.best) {
    row.insert(row.end(), 6, nullptr);
    row.back() = "none is fast enough";
    return row;
  }
  const advise::Candidate& best = *size.best;
  row.insert(row.end(), {best.tpot * 1e3, best.tokens_per_rank, best.requests(),
                         best.layout.num_ranks(), best.imbalance, text_of(best.layout)});
  return row;
}

WhatIf answer_of(const TpotOptions& options, const cost::Hardware& hardware, const Loads& loads,
                 const std::vector<advise::EpSize>& sizes) {
  const std::string limit = fmt::format("{:g} ms between tokens", options.tpot_ms);
  WhatIf answer{
      .command = "wideep simulate tpot",
      .title = fmt::format("Which EP size holds {}", limit),
      .columns = {{.key = "ep", .title = "EP"},
                  {.key = "shortest_tpot_ms", .title = "shortest TPOT", .decimals = 1},
                  {.key = "tpot_ms", .title = "TPOT of the best", .decimals = 1},
                  {.key = "tokens_per_second_per_rank", .title = "tokens/s a rank", .decimals = 1},
                  {.key = "requests", .title = "requests"},
                  {.key = "ranks", .title = "ranks"},
                  {.key = "imbalance", .title = "imbalance", .decimals = 3},
                  {.key = "layout", .title = "layout", .is_text = true}},
      .charts = {{.x = "ep",
                  .lines = {"tokens_per_second_per_rank"},
                  .y_title = fmt::format("tokens/s a rank within {}", limit)},
                 {.x = "ep",
                  .lines = {"shortest_tpot_ms", "tpot_ms"},
                  .y_title = "ms between tokens",
                  .limit = options.tpot_ms,
                  .limit_text = limit}}};
  const advise::EpSize* cheapest = nullptr;
  for (const advise::EpSize& size : sizes) {
    answer.rows.push_back(row_of(size));
    if (!size.best) continue;
    if (cheapest == nullptr || is_better(*size.best, *cheapest->best, options.workload)) {
      cheapest = &size;
    }
  }
  answer.facts = {fmt::format("{}, prompts of {} tokens, answers of {}", hardware.name,
                              options.workload.isl, options.workload.osl),
                  cheapest == nullptr
                      ? fmt::format("no EP size holds {}", limit)
                      : fmt::format("EP {} holds {} at the least cost: {:.1f} tokens/s a rank",
                                    cheapest->ep, limit, cheapest->best->tokens_per_rank),
                  loads.text};
  return answer;
}

Status run(TpotOptions options) {
  options.workload.max_tpot = options.tpot_ms * 1e-3;
  if (const auto format = options.precision.format()) options.choices.formats = {*format};
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config_of_experts(options.model));
  WIDEEP_TRY_ASSIGN(const cost::Hardware hardware, find_hardware(options.hardware));
  for (const auto format : options.choices.formats) {
    if (hardware.supports(format)) continue;
    return invalid_input(fmt::format("--dtype: {} has no products of {}", hardware.name,
                                     kernels::weight_format_name(format)));
  }
  WIDEEP_TRY_ASSIGN(const Loads loads, read_loads(options.statistics, options.holdout, config));
  WIDEEP_TRY_ASSIGN(const advise::Advice advice, advise::advise({.hardware = hardware,
                                                                 .config = config,
                                                                 .planned = loads.planned,
                                                                 .judged = loads.judged,
                                                                 .workload = options.workload,
                                                                 .choices = options.choices}));
  return show(answer_of(options, hardware, loads, by_ep_size(advice, options.workload)),
              options.output);
}

}  // namespace

void add_simulate_tpot_command(command_line::Command simulate, Status* status) {
  auto options = std::make_shared<TpotOptions>();
  const command_line::Command command = simulate.add_command(
      "tpot", "Which EP sizes hold a time between tokens, and what that costs");
  add_model_and_hardware(command, &options->model, &options->hardware);
  add_statistics_options(command, &options->statistics, true);
  add_holdout_option(command, &options->holdout);
  command.add_option("--tpot", options->tpot_ms, "Longest time between two tokens, in ms")
      .positive()
      .show_default();
  command.add_option("--isl", options->workload.isl, "Tokens of a prompt")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--osl", options->workload.osl, "Tokens of an answer")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--ranks-max", options->choices.max_ranks, "Most ranks of a layout")
      .range(1, 1 << 16)
      .show_default();
  add_precision_option(command, &options->precision);
  add_what_if_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
