// SPDX-License-Identifier: Apache-2.0
//
// wideep figures movable-experts: how many experts may move to a rank beside an iteration, by the
// link that brings them (blog 1, figure 15, and the three use cases below it).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "advise/what_if.h"
#include "base/try.h"
#include "commands.h"
#include "figures/figure.h"
#include "precision_option.h"
#include "simulate_inputs.h"

namespace wideep::tools {
namespace {

struct MovableOptions {
  std::string model, hardware;
  PrecisionOption precision;
  std::vector<int> milliseconds = {5, 10, 20, 30, 50, 100};
  int itl_ms = 50, iterations = 5;
  FigureOutput output;
};

// The blog's numbers, of DeepSeek-R1 in FP4 on GB200.
constexpr double kPublishedMs = 50, kPublishedExperts = 300, kPublishedBytes = 24.0 * (1 << 20);
struct UseCase {
  const char* gpus;
  int experts_of_layer;  // that each GPU has
  int published;         // experts that move in an iteration
};
constexpr std::array kUseCases = {UseCase{"64 GPUs, no replicas", 4, 47},
                                  UseCase{"64 or 72 GPUs, with replicas", 5, 58},
                                  UseCase{"36 GPUs, with replicas", 8, 93}};

Chart chart_of(const std::vector<advise::MovableExperts>& links, const MovableOptions& options,
               const cost::Hardware& hardware) {
  Chart chart{.kind = Chart::kLines,
              .title = "Experts that a rank can receive beside an iteration",
              .hint = "If nothing else uses the link, and all ranks that share it receive as many.",
              .x_label = "time between tokens, ms",
              .y_label = "experts of a rank",
              .log_x = true,
              .log_y = true};
  for (const auto& link : links) {
    Series series{.name = fmt::format("{}, {:.0f} GB/s of a rank ({})", link.link,
                                      link.bandwidth / 1e9, hardware.name)};
    for (size_t i = 0; i < options.milliseconds.size(); ++i) {
      series.x.push_back(options.milliseconds[i]);
      series.y.push_back(link.of_seconds[i]);
    }
    chart.series.push_back(std::move(series));
  }
  chart.series.push_back({.name = "published, from Grace's memory: up to 300",
                          .x = {kPublishedMs},
                          .y = {kPublishedExperts},
                          .published = true});
  return chart;
}

// Experts that each GPU gets anew within the given iterations, if all of them change.
Table use_cases(const std::vector<advise::MovableExperts>& links, const MovableOptions& options,
                int num_layers) {
  Table table{.title = fmt::format("All experts of all layers within {} iterations of {} ms",
                                   options.iterations, options.itl_ms),
              .columns = {"use case", "experts of a GPU", "moves per iteration", "published"}};
  for (const auto& link : links) table.columns.push_back("by " + link.link);
  for (const UseCase& each : kUseCases) {
    const int experts = each.experts_of_layer * num_layers;
    const int moves = (experts + options.iterations - 1) / options.iterations;
    table.rows.push_back({each.gpus, experts, moves, each.published});
    for (const auto& link : links) {
      const double most = std::floor(link.of_seconds.back());
      table.rows.back().push_back(
          fmt::format("{}, at most {:.0f}", most >= moves ? "fits" : "too slow", most));
    }
  }
  return table;
}

std::vector<std::string> notes_of(const std::vector<advise::MovableExperts>& links,
                                  const cost::Hardware& hardware, double bytes) {
  const double implied = kPublishedExperts * kPublishedBytes / (kPublishedMs * 1e-3);
  std::vector<std::string> notes = {
      fmt::format("An expert is {:.1f} MB here, with its scales; 24 MiB ({:.1f} MB) in the blog.",
                  bytes / 1e6, kPublishedBytes / 1e6),
      fmt::format("The published 300 experts in 50 ms are {:.0f} GB/s of a GPU.", implied / 1e9)};
  if (links.front().link == "host memory" && hardware.host_link_ranks > 1) {
    notes.push_back(fmt::format(
        "{} ranks of {} share a link of {:.0f} GB/s to the host: {:.0f} GB/s each, of which the "
        "published number takes {:.0f} %. Ours is the link's peak, which copies do not reach.",
        hardware.host_link_ranks, hardware.name, hardware.host_link.bandwidth / 1e9,
        hardware.host_bandwidth() / 1e9, 100.0 * implied / hardware.host_bandwidth()));
  }
  return notes;
}

Status run(const MovableOptions& options) {
  WIDEEP_TRY_ASSIGN(const formats::NewDirectories directories, prepare_figure(options.output));
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config_of_experts(options.model));
  WIDEEP_TRY_ASSIGN(const cost::Hardware hardware, find_hardware(options.hardware));
  const auto format = options.precision.format().value_or(config.stored_format);
  std::vector<double> seconds;
  for (const int each : options.milliseconds) seconds.push_back(each * 1e-3);
  seconds.push_back(options.itl_ms * 1e-3);  // of the use cases
  const auto links = advise::movable_experts(hardware, config, format, seconds);
  Figure figure{.name = "movable-experts",
                .title = "Experts that may move between two tokens",
                .source = "Scaling Expert Parallelism, part 1, figure 15 and its use cases"};
  figure.charts.push_back(chart_of(links, options, hardware));
  figure.tables.push_back(use_cases(links, options, config.num_moe_layers()));
  figure.notes = notes_of(links, hardware, advise::bytes_of_expert(config, format));
  return show_figure(figure, options.output);
}

}  // namespace

void add_figure_movable_experts_command(command_line::Command figures, Status* status) {
  auto options = std::make_shared<MovableOptions>();
  const command_line::Command command =
      figures.add_command("movable-experts", "How many experts may move between two tokens");
  add_model_and_hardware(command, &options->model, &options->hardware);
  add_precision_option(command, &options->precision);
  command.add_option("--iteration-ms", options->milliseconds, "Times between tokens: A,B,C")
      .separate_values_by(',')
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--itl-ms", options->itl_ms, "Time between tokens of the use cases")
      .range(1, 1 << 20)
      .show_default();
  command
      .add_option("--iterations", options->iterations,
                  "Within which the use cases replace all experts")
      .range(1, 1 << 20)
      .show_default();
  add_figure_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
