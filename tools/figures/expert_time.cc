// SPDX-License-Identifier: Apache-2.0
//
// wideep figures expert-time: what the experts' products and the communication of an iteration take
// by the number of ranks that share the experts, in order and balanced (blog 1, figures 24 and 25).
//
// Predicted of GPUs by the advisor's model of costs, for a recorded load; and measured with the
// engine on this machine, whose ranks may outnumber the cores: a small model of DeepSeek-V3's
// structure whose router follows the same load (engine_scale.h). So measured times are processor
// time, and only ratios compare. A rank that has few tokens for its experts waits in the combine
// until the slowest rank has computed its own: profiles count that wait as communication, and so do
// both here.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/progress.h"
#include "base/try.h"
#include "commands.h"
#include "cost/step_cost.h"
#include "figures/figure.h"
#include "measure/predict/engine_scale.h"
#include "model/model_work.h"
#include "precision_option.h"
#include "simulate_inputs.h"

namespace wideep::tools {
namespace {

struct TimeOptions {
  std::string model, hardware, holdout;
  StatisticsOptions statistics;
  PrecisionOption precision;
  std::vector<int> ranks = {4, 8, 18, 36, 72};
  std::vector<int> measured_ranks = {2, 4, 8};
  int batch = 256, context = 1024, measured_batch = 16, redundant = 1, repeat = 4;
  FigureOutput output;
};

// Of an iteration, seconds.
struct Times {
  double experts = 0.0;   // of the slowest rank in every layer
  double exchange = 0.0;  // dispatch and combine
  double waits = 0.0;     // of the mean rank for the slowest one

  double communication() const { return exchange + waits; }
};

// One size of the group, without and with balancing.
struct AtRanks {
  int ranks = 0;
  Times in_order, balanced;
};

int slots_of(int num_experts, int ranks, int redundant) {
  return ((num_experts + ranks - 1) / ranks + redundant) * ranks;
}

// is_balanced: placed for the load that is planned for; else experts are in their order.
Result<Times> predict(const TimeOptions& options, const model::ModelConfig& config,
                      const cost::Hardware& hardware, const Loads& loads,
                      const balance::PlanShape& shape, bool is_balanced) {
  const int top_k = config.routing.top_k;
  std::vector<cost::PlacedLayer> placed;
  for (size_t i = 0; i < loads.judged.load.size(); ++i) {
    if (is_balanced) {
      WIDEEP_TRY_ASSIGN(auto layer, cost::place_layer(loads.planned.load[i], loads.judged.load[i],
                                                      top_k, shape, true));
      placed.push_back(std::move(layer));
      continue;
    }
    WIDEEP_TRY_ASSIGN(
        const balance::Placement in_order,
        balance::default_placement(shape.num_experts, shape.ep_size, shape.num_slots));
    placed.push_back(cost::placed_as(in_order, loads.judged.load[i], top_k));
  }
  const auto format = options.precision.format().value_or(config.stored_format);
  const cost::StepCost cost(hardware, config,
                            {.ep = shape.ep_size, .num_slots = shape.num_slots, .format = format},
                            std::move(placed));
  const model::StepShape step = model::decode_step(options.batch, options.context, 0);
  const cost::StepTime time = cost.step(step);
  const double mean = cost.rank_time(step, cost::StepCost::Rank::kMean).experts;
  return Times{.experts = time.experts,
               .exchange = time.dispatch + time.combine,
               .waits = std::max(0.0, time.experts - mean)};
}

Result<std::vector<AtRanks>> predict_all(const TimeOptions& options,
                                         const model::ModelConfig& config,
                                         const cost::Hardware& hardware, const Loads& loads) {
  std::vector<AtRanks> found;
  for (const int ranks : options.ranks) {
    AtRanks at{.ranks = ranks};
    const auto times = [&](int redundant, bool is_balanced) {
      const balance::PlanShape shape{
          .num_experts = config.routing.num_experts,
          .ep_size = ranks,
          .num_slots = slots_of(config.routing.num_experts, ranks, redundant)};
      return predict(options, config, hardware, loads, shape, is_balanced);
    };
    WIDEEP_TRY_ASSIGN(at.in_order, times(0, false));
    WIDEEP_TRY_ASSIGN(at.balanced, times(options.redundant, true));
    found.push_back(at);
  }
  return found;
}

Result<std::vector<AtRanks>> measure_all(const TimeOptions& options,
                                         const balance::ModelLoad& load) {
  const model::ModelConfig config = measure::scaled_model();
  const balance::ModelLoad scaled = measure::scaled_load(config, load);
  std::vector<AtRanks> found;
  base::Progress progress("measuring", 2 * std::ssize(options.measured_ranks), "groups");
  run::RunView silent;
  for (const int ranks : options.measured_ranks) {
    AtRanks at{.ranks = ranks};
    for (const bool is_balanced : {false, true}) {
      WIDEEP_TRY_ASSIGN(
          const measure::EngineCost cost,
          measure::run_engine_scale(config, scaled,
                                    {.num_ranks = ranks,
                                     .spare_slots = is_balanced ? options.redundant * ranks : 0,
                                     .planned = is_balanced,
                                     .batch = options.measured_batch,
                                     .repetitions = options.repeat},
                                    silent));
      (is_balanced ? at.balanced : at.in_order) = {
          .experts = cost.busiest_experts,
          .exchange = cost.mean.exchange,
          .waits = std::max(0.0, cost.busiest_experts - cost.mean.experts)};
      progress.step();
    }
    found.push_back(at);
  }
  return found;
}

// Both parts, without and with balancing, over the number of ranks.
Chart times_chart(const std::vector<AtRanks>& found, std::string title, std::string hint) {
  Chart chart{.kind = Chart::kLines,
              .title = std::move(title),
              .hint = std::move(hint),
              .x_label = "ranks that share the experts (EP)",
              .y_label = "time in an iteration, ms",
              .log_x = true};
  const auto add = [&](const char* name, auto&& of) {
    Series series{.name = name};
    for (const AtRanks& at : found) {
      series.x.push_back(at.ranks);
      series.y.push_back(1e3 * of(at));
    }
    chart.series.push_back(std::move(series));
  };
  add("experts' products, in order", [](const AtRanks& at) { return at.in_order.experts; });
  add("experts' products, balanced", [](const AtRanks& at) { return at.balanced.experts; });
  add("communication, in order", [](const AtRanks& at) { return at.in_order.communication(); });
  add("communication, balanced", [](const AtRanks& at) { return at.balanced.communication(); });
  return chart;
}

// Of each part, the time without balancing as a multiple of that with it.
Chart gains_chart(const std::vector<AtRanks>& found, std::string title) {
  Chart chart{.kind = Chart::kBars,
              .title = std::move(title),
              .hint = "The time in order as a multiple of the balanced one: 1 is no gain.",
              .x_label = "ranks that share the experts (EP)",
              .y_label = "× faster by balancing",
              .series = {{.name = "experts' products"}, {.name = "communication"}}};
  for (const AtRanks& at : found) {
    chart.categories.push_back(fmt::format("EP {}", at.ranks));
    chart.series[0].y.push_back(at.in_order.experts / at.balanced.experts);
    chart.series[1].y.push_back(at.in_order.communication() / at.balanced.communication());
  }
  return chart;
}

Table numbers(const std::vector<AtRanks>& found, std::string title) {
  Table table{
      .title = std::move(title),
      .columns = {"EP", "experts, ms", "dispatch + combine, ms", "waits, ms",
                  "experts balanced, ms", "dispatch + combine balanced, ms", "waits balanced, ms"}};
  for (const AtRanks& at : found) {
    table.rows.push_back({at.ranks});
    for (const Times& times : {at.in_order, at.balanced}) {
      for (const double seconds : {times.experts, times.exchange, times.waits}) {
        table.rows.back().push_back(1e3 * seconds);
      }
    }
  }
  return table;
}

// What the text says of its two figures, and whether these show it.
Table claims(const std::vector<AtRanks>& found, std::string title) {
  const AtRanks &first = found.front(), &last = found.back();
  const double steps = static_cast<double>(last.ranks) / first.ranks;
  const auto ratio = [](double a, double b) { return fmt::format("× {:.2f}", a / b); };
  const auto gain = [](const AtRanks& at) { return at.in_order.experts / at.balanced.experts; };
  Table table{.title = std::move(title), .columns = {"published", "here"}};
  table.rows = {
      {"the experts' time falls with EP",
       fmt::format("EP {} takes {} of EP {}, balanced", last.ranks,
                   ratio(last.balanced.experts, first.balanced.experts), first.ranks)},
      {"the speed-up diminishes as EP grows",
       fmt::format("{:.2f} × faster on {:.0f} × the ranks, balanced",
                   first.balanced.experts / last.balanced.experts, steps)},
      {"communication stays almost constant",
       fmt::format("EP {} takes {} of EP {}, balanced, waits included", last.ranks,
                   ratio(last.balanced.communication(), first.balanced.communication()),
                   first.ranks)},
      {"balancing gains more the larger EP is, in the experts",
       fmt::format("{:.2f} × at EP {}, {:.2f} × at EP {}", gain(first), first.ranks, gain(last),
                   last.ranks)},
      {"… and in communication",
       fmt::format("{:.2f} × at EP {}, {:.2f} × at EP {}",
                   first.in_order.communication() / first.balanced.communication(), first.ranks,
                   last.in_order.communication() / last.balanced.communication(), last.ranks)}};
  return table;
}

void add_part(const std::vector<AtRanks>& found, const std::string& where, const std::string& hint,
              Figure* figure) {
  figure->charts.push_back(times_chart(found, where, hint));
  figure->charts.push_back(gains_chart(found, where + ": what balancing gains"));
  figure->tables.push_back(numbers(found, where));
  figure->tables.push_back(claims(found, where + ", beside the text"));
}

Status check(const TimeOptions& options, const model::ModelConfig& config,
             const cost::Hardware& hardware, const Loads& loads) {
  if (options.statistics.ep_size) {
    return invalid_input(
        "--ep-size: this figure is over several EP sizes; give them with --ranks and "
        "--measured-ranks");
  }
  const int experts = config.routing.num_experts;
  for (const int ranks : options.ranks) {
    if (ranks > experts) {
      return invalid_input(
          fmt::format("--ranks: expected 2 to {} (the model's experts), found {}", experts, ranks));
    }
    const bool is_joined = hardware.divisible || ranks <= hardware.node_link_ranks;
    if (is_joined || hardware.network.bandwidth > 0.0) continue;
    return invalid_input(
        fmt::format("--ranks: {} joins {} ranks (node_link) and has no network "
                    "for more, found {}",
                    hardware.name, hardware.node_link_ranks, ranks));
  }
  const auto format = options.precision.format().value_or(config.stored_format);
  if (!hardware.supports(format)) {
    return invalid_input(fmt::format("--dtype: {} has no products of {}; choose another precision",
                                     hardware.name, kernels::weight_format_name(format)));
  }
  const int measured = measure::scaled_model().routing.num_experts;
  if (options.measured_ranks.empty() || loads.judged.num_experts == measured) return {};
  return invalid_input(fmt::format(
      "--measured-ranks: the model that is measured has {} experts, the load {}; leave the "
      "measurement out with --no-measure",
      measured, loads.judged.num_experts));
}

Status run(const TimeOptions& options) {
  WIDEEP_TRY_ASSIGN(const formats::NewDirectories directories, prepare_figure(options.output));
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config_of_experts(options.model));
  WIDEEP_TRY_ASSIGN(const cost::Hardware hardware, find_hardware(options.hardware));
  WIDEEP_TRY_ASSIGN(const Loads loads, read_loads(options.statistics, options.holdout, config));
  WIDEEP_TRY(check(options, config, hardware, loads));
  // Ranks are forked before anything starts a thread.
  std::vector<AtRanks> measured;
  if (!options.measured_ranks.empty()) {
    WIDEEP_TRY_ASSIGN(measured, measure_all(options, loads.judged));
  }
  WIDEEP_TRY_ASSIGN(const auto predicted, predict_all(options, config, hardware, loads));
  Figure figure{.name = "expert-time",
                .title = "Experts' products and communication by the number of ranks",
                .source = "Scaling Expert Parallelism, part 1, figures 24 and 25"};
  add_part(
      predicted,
      fmt::format("Predicted for {}, {} tokens of a rank", hardware.device, options.batch),
      "Of all MoE layers in one iteration of generated tokens; communication has what the mean "
      "rank waits for the slowest.",
      &figure);
  if (!measured.empty()) {
    add_part(
        measured, "Measured on this machine",
        fmt::format("Processor time of a small model's ranks, {} tokens of each, with the same "
                    "load: only ratios compare.",
                    options.measured_batch),
        &figure);
  }
  figure.notes = {
      fmt::format(
          "Load: {}; balanced: {} more slot(s) on every rank, placed by the planner wideep.",
          loads.text, options.redundant),
      "The text gives no numbers of its figures 24 and 25, which are images: its claims stand "
      "beside the tables. It uses reduce-scatter up to EP 8, the all-to-all beyond; here it is "
      "always the all-to-all."};
  return show_figure(figure, options.output);
}

}  // namespace

void add_figure_expert_time_command(command_line::Command figures, Status* status) {
  auto options = std::make_shared<TimeOptions>();
  auto no_measure = std::make_shared<bool>(false);
  const command_line::Command command = figures.add_command(
      "expert-time", "Time of experts and communication by the number of ranks");
  add_model_and_hardware(command, &options->model, &options->hardware);
  add_statistics_options(command, &options->statistics, true);
  add_holdout_option(command, &options->holdout);
  add_precision_option(command, &options->precision);
  command.add_option("--ranks", options->ranks, "EP sizes that are predicted: A,B,C")
      .separate_values_by(',')
      .range(2, 1 << 16)
      .show_default();
  command.add_option("--batch", options->batch, "Tokens of a rank in a predicted iteration")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--context", options->context, "Positions before each of these tokens")
      .range(0, 1 << 24)
      .show_default();
  command.add_option("--redundant", options->redundant, "Slots of each rank for replicas")
      .range(0, 1 << 10)
      .show_default();
  const auto measured = command.add_option("--measured-ranks", options->measured_ranks,
                                           "EP sizes that are measured on this machine: A,B,C");
  command_line::Option(measured).separate_values_by(',').range(2, 256).show_default();
  command.add_flag("--no-measure", *no_measure, "Only predict; else ranks of a small model are run")
      .excludes(measured);
  command
      .add_option("--measured-batch", options->measured_batch,
                  "Tokens of a rank in a measured iteration")
      .range(1, 32)
      .show_default();
  command.add_option("--repeat", options->repeat, "Measured repetitions of 13 iterations each")
      .range(1, 1000)
      .show_default();
  add_figure_output(command, &options->output);
  command.on_run([options, no_measure, status] {
    if (*no_measure) options->measured_ranks.clear();
    *status = run(*options);
  });
}

}  // namespace wideep::tools
