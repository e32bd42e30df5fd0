// SPDX-License-Identifier: Apache-2.0
//
// wideep figures sent-tokens: where one rank, and all ranks, send their tokens, from routing logs:
// by layer and receiving rank in one iteration, by rank, expert and slot over iterations, and how
// uneven that is (blog 1, figures 1 to 11 and 16 to 23, and table 1).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/printable.h"
#include "base/try.h"
#include "commands.h"
#include "figures/figure.h"
#include "figures/slot_pairs.h"
#include "plan/load_summary.h"
#include "recordings/balancer_yaml.h"
#include "recordings/routing_log.h"

namespace wideep::tools {
namespace {

using recordings::RoutingLog;

struct SentOptions {
  std::vector<std::string> logs, names, placements;
  int sender = 0, iterations = 50, nodes = 1;
  std::optional<int> iteration, layer;
  FigureOutput output;
};

// A log, and which of it is shown.
struct Run {
  std::string name;
  RoutingLog log;
  std::optional<balance::ModelPlacement> placement;
  size_t first = 0, end = 0;  // iterations, by index
  size_t layer_idx = 0;
  std::vector<SlotPairs> slots;  // [layers], if there is a placement

  const RoutingLog::Iteration& shown() const { return log.iterations[first]; }
};

using Rows = std::vector<std::vector<double>>;

// What one sender or all have sent: the sums over the senders, each [n].
template <typename T>
std::vector<double> sent_by(const std::vector<std::vector<T>>& of_senders,
                            std::optional<int> sender) {
  std::vector<double> sums(of_senders[0].size());
  for (size_t from = 0; from < of_senders.size(); ++from) {
    if (sender && static_cast<int>(from) != *sender) continue;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(of_senders[from][i]);
  }
  return sums;
}

enum class By { kRank, kExpert, kSlot };

// Of one layer in the index-th shown iteration.
std::vector<double> pairs_of(const Run& run, size_t layer_idx, size_t index, By by,
                             std::optional<int> sender) {
  if (by == By::kSlot) return sent_by(run.slots[layer_idx][index], sender);
  const RoutingLog::Iteration& iteration = run.log.iterations[run.first + index];
  return by == By::kRank ? sent_by(iteration.sent[layer_idx], sender)
                         : sent_by(iteration.counts[layer_idx], sender);
}

Rows over_iterations(const Run& run, By by, std::optional<int> sender) {
  Rows rows;
  for (size_t i = 0; i < run.end - run.first; ++i) {
    rows.push_back(pairs_of(run, run.layer_idx, i, by, sender));
  }
  return rows;
}

std::vector<std::string> numbered(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

// ---- reading ----

Result<size_t> find_iteration(const Run& run, const SentOptions& options) {
  const auto& iterations = run.log.iterations;
  const auto count = static_cast<size_t>(options.iterations);
  if (!options.iteration) {
    // Prompts have so many tokens that nothing would be seen of the others.
    size_t first = iterations.size() - std::min(iterations.size(), count);
    while (first + 1 < iterations.size() && iterations[first].prompt_tokens > 0) ++first;
    return first;
  }
  const auto found =
      std::ranges::find(iterations, *options.iteration, &RoutingLog::Iteration::iteration);
  if (found != iterations.end()) return static_cast<size_t>(found - iterations.begin());
  return invalid_input(
      fmt::format("--iteration: {} is not in the log {}, which has {} iterations from {} to {}",
                  *options.iteration, run.name, iterations.size(), iterations.front().iteration,
                  iterations.back().iteration));
}

// The one given, or that in which the sender sends most to one rank in the shown iteration.
Result<size_t> find_layer(const Run& run, const SentOptions& options) {
  const std::vector<int>& layers = run.log.layers;
  if (options.layer) {
    const auto found = std::ranges::find(layers, *options.layer);
    if (found != layers.end()) return static_cast<size_t>(found - layers.begin());
    return invalid_input(fmt::format("--layer: expected a MoE layer, {} to {}, found {}",
                                     layers.front(), layers.back(), *options.layer));
  }
  size_t hottest = 0;
  double most = -1.0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const double max =
        std::ranges::max(sent_by(run.shown().sent[i], std::optional<int>(options.sender)));
    if (max > most) hottest = i;
    most = std::max(most, max);
  }
  return hottest;
}

Status add_slots(const std::string& path, const SentOptions& options, Run* run) {
  const recordings::MoeShape shape{.moe_layers = run->log.layers,
                                   .num_experts = run->log.num_experts,
                                   .ep_size = run->log.ep_size,
                                   .unused_slots = true};
  WIDEEP_TRY_ASSIGN(run->placement, recordings::read_balancer_yaml(path, shape));
  if (run->placement->num_slots != run->log.num_slots) {
    return invalid_input(fmt::format("--placement: {} has {} slots, but the log {} has {}", path,
                                     run->placement->num_slots, run->name, run->log.num_slots));
  }
  for (size_t layer = 0; layer < run->log.layers.size(); ++layer) {
    auto pairs = slot_pairs(run->log, *run->placement, layer,
                            {.first = run->first, .end = run->end, .num_nodes = options.nodes});
    if (!pairs.ok()) {
      return invalid_input(fmt::format("--placement: {}: {}", path, pairs.status().message()));
    }
    run->slots.push_back(std::move(pairs).value());
  }
  return {};
}

Status check_senders(const SentOptions& options, const Run& run) {
  if (options.sender >= run.log.ep_size) {
    return invalid_input(fmt::format("--sender: expected a rank of 0 to {} (the log {}), found {}",
                                     run.log.ep_size - 1, run.name, options.sender));
  }
  if (run.log.ep_size % options.nodes != 0) {
    return invalid_input(fmt::format("--nodes: expected a divisor of {} ranks, found {}",
                                     run.log.ep_size, options.nodes));
  }
  return {};
}

Result<std::vector<Run>> read_runs(const SentOptions& options) {
  if (!options.names.empty() && options.names.size() != options.logs.size()) {
    return invalid_input(fmt::format("--names: expected as many names as logs ({}), found {}",
                                     options.logs.size(), options.names.size()));
  }
  if (options.placements.size() > options.logs.size()) {
    return invalid_input(
        fmt::format("--placement: expected at most one for each of {} logs, "
                    "found {}; - leaves one out",
                    options.logs.size(), options.placements.size()));
  }
  std::vector<Run> runs;
  for (size_t i = 0; i < options.logs.size(); ++i) {
    Run run{.name = options.names.empty() ? std::filesystem::path(options.logs[i]).stem().string()
                                          : options.names[i]};
    WIDEEP_TRY_ASSIGN(run.log, recordings::read_routing_log(options.logs[i]));
    WIDEEP_TRY(check_senders(options, run));
    WIDEEP_TRY_ASSIGN(run.first, find_iteration(run, options));
    run.end =
        std::min(run.log.iterations.size(), run.first + static_cast<size_t>(options.iterations));
    if (i > 0 && run.log.layers != runs[0].log.layers) {
      return invalid_input(
          fmt::format("--routing-log: {} and {} have other MoE layers: not of one "
                      "model",
                      runs[0].name, run.name));
    }
    if (i == 0) {
      WIDEEP_TRY_ASSIGN(run.layer_idx, find_layer(run, options));
    } else {
      run.layer_idx = runs[0].layer_idx;  // so that all show the same layer
    }
    if (i < options.placements.size() && options.placements[i] != "-") {
      WIDEEP_TRY(add_slots(options.placements[i], options, &run));
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

// ---- charts ----

// One heat chart for all panels of one shape, so that they share a scale of colours.
void add_heat(Chart chart, std::vector<std::string> rows, HeatPanel panel, Figure* figure) {
  chart.kind = Chart::kHeat;
  chart.unit = "pairs";
  chart.columns = numbered(panel.values[0].size());
  chart.rows = std::move(rows);
  for (Chart& other : figure->charts) {
    if (other.title != chart.title || other.rows != chart.rows || other.columns != chart.columns) {
      continue;
    }
    other.panels.push_back(std::move(panel));
    return;
  }
  chart.panels.push_back(std::move(panel));
  figure->charts.push_back(std::move(chart));
}

const char* name_of(By by) {
  return by == By::kRank ? "receiving rank" : by == By::kExpert ? "expert" : "slot";
}

// One iteration, all layers.
void add_layers(const std::vector<Run>& runs, By by, int sender, Figure* figure) {
  for (const Run& run : runs) {
    if (by == By::kSlot && !run.placement) continue;
    std::vector<std::string> rows;
    for (const int layer : run.log.layers) rows.push_back(std::to_string(layer));
    HeatPanel panel{.name = fmt::format("{}, iteration {}", run.name, run.shown().iteration)};
    for (size_t layer = 0; layer < run.log.layers.size(); ++layer) {
      panel.values.push_back(pairs_of(run, layer, 0, by, sender));
    }
    add_heat({.title = fmt::format("Sent from rank {}, by layer and {}", sender, name_of(by)),
              .hint = by == By::kRank ? "Figures 1 and 6." : "",
              .x_label = name_of(by),
              .y_label = "layer"},
             std::move(rows), std::move(panel), figure);
  }
}

void add_iterations(const std::vector<Run>& runs, By by, std::optional<int> sender,
                    Figure* figure) {
  const char* what = name_of(by);
  const char* hint = by == By::kRank     ? sender ? "Figures 8, 22 and 23." : "Figures 16, 18, 20."
                     : by == By::kExpert ? "Figure 17."
                                         : "Figures 19 and 21.";
  const std::string from = sender ? fmt::format("rank {}", *sender) : std::string("all ranks");
  for (const Run& run : runs) {
    if (by == By::kSlot && !run.placement) continue;
    std::vector<std::string> rows;
    for (size_t i = run.first; i < run.end; ++i) {
      rows.push_back(std::to_string(run.log.iterations[i].iteration));
    }
    add_heat({.title = fmt::format("Sent from {} in layer {}, by {} and iteration", from,
                                   run.log.layers[run.layer_idx], what),
              .hint = hint,
              .x_label = what,
              .y_label = "iteration"},
             std::move(rows), {.name = run.name, .values = over_iterations(run, by, sender)},
             figure);
  }
}

// Bars over ranks or experts: in one iteration, or summed over all that are shown.
void add_bars(const std::vector<Run>& runs, By by, std::optional<int> sender, bool is_sum,
              Figure* figure) {
  const int layer = runs[0].log.layers[runs[0].layer_idx];
  const std::string from = sender ? fmt::format("rank {}", *sender) : std::string("all ranks");
  Chart chart{.kind = Chart::kBars,
              .title = fmt::format("Sent from {} in layer {}, by {}, {}", from, layer,
                                   by == By::kRank ? "receiving rank" : "expert",
                                   is_sum ? "all iterations" : "one iteration"),
              .hint = by == By::kRank ? is_sum ? "Figure 8." : "Figures 2 and 7."
                      : is_sum        ? "Figures 4, 5 and 9 to 11."
                                      : "Figure 3.",
              .x_label = by == By::kRank ? "receiving rank" : "expert",
              .y_label = "pairs (token, expert)"};
  size_t most = 0;
  for (const Run& run : runs) {
    Series series{.name = fmt::format("{}, iteration {}", run.name, run.shown().iteration)};
    if (is_sum) series.name += fmt::format(" to {}", run.log.iterations[run.end - 1].iteration);
    for (size_t i = 0; i < (is_sum ? run.end - run.first : 1); ++i) {
      const std::vector<double> pairs = pairs_of(run, run.layer_idx, i, by, sender);
      series.y.resize(pairs.size());
      for (size_t j = 0; j < pairs.size(); ++j) series.y[j] += pairs[j];
    }
    most = std::max(most, series.y.size());
    chart.series.push_back(std::move(series));
  }
  for (Series& series : chart.series) series.y.resize(most, kNoNumber);  // of fewer ranks
  chart.categories = numbered(most);
  figure->charts.push_back(std::move(chart));
}

// ---- tables ----

Table hottest_table(const std::vector<Run>& runs, const SentOptions& options) {
  Table table{.title = fmt::format("What rank {} sends to one rank", options.sender),
              .columns = {"run", "iteration", "hottest layer", "to rank", "pairs", "mean pairs"}};
  for (const Run& run : runs) {
    size_t layer = 0;
    std::vector<double> hottest;
    for (size_t i = 0; i < run.log.layers.size(); ++i) {
      std::vector<double> sent = sent_by(run.shown().sent[i], std::optional<int>(options.sender));
      if (!hottest.empty() && std::ranges::max(sent) <= std::ranges::max(hottest)) continue;
      layer = i;
      hottest = std::move(sent);
    }
    const auto max = std::ranges::max_element(hottest);
    table.rows.push_back({run.name, run.shown().iteration, run.log.layers[layer],
                          max - hottest.begin(), *max, balance::summarize_loads(hottest).mean});
  }
  table.rows.push_back({"published, translation", 1950, 36, 13, nullptr, nullptr});
  table.rows.push_back({"published, GSM8K", 1950, 57, nullptr, nullptr, nullptr});
  return table;
}

// The mean over layers and shown iterations.
balance::LoadSummary unevenness(const Run& run, By by) {
  balance::LoadSummary mean;
  const double count =
      static_cast<double>(run.log.layers.size()) * static_cast<double>(run.end - run.first);
  for (size_t layer = 0; layer < run.log.layers.size(); ++layer) {
    for (size_t i = 0; i < run.end - run.first; ++i) {
      const balance::LoadSummary each =
          balance::summarize_loads(pairs_of(run, layer, i, by, std::nullopt));
      mean.mean += each.mean / count;
      mean.std += each.std / count;
      mean.imbalance_ratio += each.imbalance_ratio / count;
    }
  }
  return mean;
}

// Table 1. Without replicas slots are experts.
Table table_1(const std::vector<Run>& runs) {
  Table table{.title = "How uneven what ranks and slots receive is (table 1)",
              .columns = {"run", "rank average", "rank std. dev.", "rank imb. ratio",
                          "slot average", "slot std. dev.", "slot imb. ratio"}};
  for (const Run& run : runs) {
    table.rows.push_back({run.name});
    const bool has_slots = run.placement || run.log.num_slots == run.log.num_experts;
    for (const By by : {By::kRank, run.placement ? By::kSlot : By::kExpert}) {
      if (by != By::kRank && !has_slots) {
        for (int i = 0; i < 3; ++i) table.rows.back().push_back(nullptr);
        continue;
      }
      const balance::LoadSummary mean = unevenness(run, by);
      for (const double each : {mean.mean, mean.std, mean.imbalance_ratio}) {
        table.rows.back().push_back(each);
      }
    }
  }
  table.rows.push_back(
      {"published, EP 32, 8 slots, no EPLB", 1024, 491.6, 1.564, 128, 164.1, 10.948});
  table.rows.push_back({"published, EP 32, 9 slots, EPLB", 1024, 52.0, 0.109, 114, 77.8, 1.792});
  table.rows.push_back({"published, EP 36, 8 slots, EPLB", 1024, 53.9, 0.115, 128, 87.5, 1.791});
  return table;
}

std::vector<std::string> notes_of(const std::vector<Run>& runs) {
  std::vector<std::string> notes = {
      "The unit is the pair (token, expert). Published numbers are of DeepSeek-R1 on 32 GB200 with "
      "256 requests of each rank, means over layers and iterations."};
  for (const Run& run : runs) {
    int64_t moves = 0;
    for (const RoutingLog::LayerUpdate& update : run.log.layer_updates) {
      if (update.layer == run.log.layers[run.layer_idx]) moves += update.moves;
    }
    if (moves > 0) {
      notes.push_back(fmt::format("{}: online balancing moved {} experts of layer {}.", run.name,
                                  moves, run.log.layers[run.layer_idx]));
    }
    if (!run.placement && run.log.num_slots > run.log.num_experts) {
      notes.push_back(
          fmt::format("{}: with replicas slots follow from the run's placement "
                      "(--placement), which was not given.",
                      run.name));
    }
  }
  return notes;
}

Status run(const SentOptions& options) {
  WIDEEP_TRY_ASSIGN(const formats::NewDirectories directories, prepare_figure(options.output));
  WIDEEP_TRY_ASSIGN(const std::vector<Run> runs, read_runs(options));
  Figure figure{
      .name = "sent-tokens",
      .title = fmt::format("Where tokens are sent: {}", base::printable(runs[0].log.model, 80)),
      .source = "Scaling Expert Parallelism, part 1, figures 1 to 11, 16 to 23, table 1"};
  const std::optional<int> sender = options.sender;
  for (const By by : {By::kRank, By::kExpert, By::kSlot}) {
    add_layers(runs, by, options.sender, &figure);
  }
  add_bars(runs, By::kRank, sender, false, &figure);
  add_bars(runs, By::kRank, std::nullopt, false, &figure);
  add_bars(runs, By::kExpert, std::nullopt, false, &figure);
  add_bars(runs, By::kExpert, std::nullopt, true, &figure);
  for (const std::optional<int> from : {sender, std::optional<int>()}) {
    for (const By by : {By::kRank, By::kExpert, By::kSlot}) {
      add_iterations(runs, by, from, &figure);
    }
  }
  figure.tables = {hottest_table(runs, options), table_1(runs)};
  figure.notes = notes_of(runs);
  return show_figure(figure, options.output);
}

}  // namespace

void add_figure_sent_tokens_command(command_line::Command figures, Status* status) {
  auto options = std::make_shared<SentOptions>();
  const command_line::Command command = figures.add_command(
      "sent-tokens", "Where one rank and all ranks send their tokens, from routing logs");
  command
      .add_option("--routing-log", options->logs,
                  "A log of generate --routing-log; again for each run that is drawn beside it")
      .required()
      .one_value_each();
  command.add_option("--names", options->names, "Names of the runs (default: of the files): A,B")
      .separate_values_by(',');
  command
      .add_option("--placement", options->placements,
                  "moe_load_balancer.yaml of the run, for its slots; one for each log in order, - "
                  "for none")
      .path()
      .one_value_each();
  command.add_option("--nodes", options->nodes, "Nodes that the runs were on, for their slots")
      .range(1, 1 << 16)
      .show_default();
  command.add_option("--sender", options->sender, "The rank whose tokens are followed")
      .not_negative()
      .show_default();
  command
      .add_option("--iteration", options->iteration,
                  "The engine's number of the iteration (default: the first without prompts "
                  "of the last --iterations)")
      .not_negative();
  command.add_option("--iterations", options->iterations, "Iterations that are shown from it on")
      .range(1, 1000)
      .show_default();
  command
      .add_option("--layer", options->layer,
                  "Layer that is followed over iterations (default: the sender's hottest)")
      .not_negative();
  add_figure_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
