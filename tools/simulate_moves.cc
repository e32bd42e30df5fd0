// SPDX-License-Identifier: Apache-2.0
//
// wideep simulate moves: how many experts can move beside an iteration.
#include <fmt/format.h>

#include <memory>

#include "base/try.h"
#include "commands.h"
#include "precision_option.h"
#include "simulate/what_if.h"
#include "simulate_inputs.h"

namespace wideep::tools {
namespace {

struct MovesOptions {
  std::string model, hardware;
  PrecisionOption precision;
  std::vector<int> milliseconds = {5, 10, 20, 30, 50, 100};
};

Status run(const MovesOptions& options) {
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config(options.model));
  WIDEEP_TRY_ASSIGN(const simulate::Hardware hardware, find_hardware(options.hardware));
  const auto format = options.precision.format().value_or(config.stored_format);
  std::vector<double> seconds;
  for (const int each : options.milliseconds) seconds.push_back(each * 1e-3);
  fmt::print("expert       {:.1f} MB in {}\n", simulate::bytes_of_expert(config, format) / 1e6,
             kernels::weight_format_name(format));
  fmt::print(
      "experts that a rank of {} can receive in an iteration, if nothing else uses the link\n",
      hardware.name);
  fmt::print("{:26} {:>8}", "link", "GB/s");
  for (const int each : options.milliseconds) fmt::print(" {:>6} ms", each);
  fmt::print("\n");
  for (const auto& link : simulate::movable_experts(hardware, config, format, seconds)) {
    fmt::print("{:26} {:8.0f}", link.link, link.bandwidth / 1e9);
    for (const double experts : link.of_seconds) fmt::print(" {:9.1f}", experts);
    fmt::print("\n");
  }
  return {};
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
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
