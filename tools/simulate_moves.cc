// SPDX-License-Identifier: Apache-2.0
//
// wideep simulate moves: how many experts can move beside an iteration.
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

struct MovesOptions {
  std::string model, hardware;
  PrecisionOption precision;
  std::vector<int> milliseconds = {5, 10, 20, 30, 50, 100};
  WhatIfOutput output;
};

Status run(const MovesOptions& options) {
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config_of_experts(options.model));
  WIDEEP_TRY_ASSIGN(const cost::Hardware hardware, find_hardware(options.hardware));
  const auto format = options.precision.format().value_or(config.stored_format);
  std::vector<double> seconds;
  for (const int each : options.milliseconds) seconds.push_back(each * 1e-3);
  WhatIf answer{
      .command = "wideep simulate moves",
      .title = "Experts that can move beside an iteration",
      .facts = {fmt::format("expert: {:.1f} MB in {}",
                            advise::bytes_of_expert(config, format) / 1e6,
                            kernels::weight_format_name(format)),
                fmt::format("experts that a rank of {} can receive in an iteration while those "
                            "that share a link receive as many, if nothing else uses it",
                            hardware.name)},
      .columns = {{.key = "iteration_ms", .title = "iteration, ms"}},
      .charts = {{.x = "iteration_ms", .y_title = "experts received", .is_logarithmic = true}}};
  for (const int each : options.milliseconds) answer.rows.push_back({each});
  for (const auto& link : advise::movable_experts(hardware, config, format, seconds)) {
    answer.columns.push_back(
        {.key = link.link,
         .title = fmt::format("{}, {:.0f} GB/s", link.link, link.bandwidth / 1e9),
         .decimals = 1});
    answer.charts[0].lines.push_back(link.link);
    for (size_t i = 0; i < seconds.size(); ++i) answer.rows[i].push_back(link.of_seconds[i]);
  }
  return show(answer, options.output);
}

}  // namespace

void add_simulate_moves_command(command_line::Command simulate, Status* status) {
  auto options = std::make_shared<MovesOptions>();
  const command_line::Command command =
      simulate.add_command("moves", "Experts that can move beside an iteration, by link");
  add_model_and_hardware(command, &options->model, &options->hardware);
  add_precision_option(command, &options->precision);
  command.add_option("--iteration-ms", options->milliseconds, "Durations of an iteration: A,B,C")
      .separate_values_by(',')
      .range(1, 1 << 20)
      .show_default();
  add_what_if_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
