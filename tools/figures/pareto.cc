// SPDX-License-Identifier: Apache-2.0
//
// wideep figures pareto: throughput of a rank over the speed of a user, by expert parallelism.
//
// Points are measured, from reports and logs of sweeps, or predicted, by weighing layouts as
// `advise` does. For each lengths of prompts and answers there are two charts, the fronts and all
// points, and a table of how many times the throughput of small EP larger EP reaches at a speed of
// users that both have, which is the one number that the text prints of these figures.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "advise/advise.h"
#include "advise/range.h"
#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "figures/figure.h"
#include "measure/serving/sweep_points.h"
#include "precision_option.h"
#include "simulate_inputs.h"

namespace wideep::tools {
namespace {

using measure::SweepPoint;

// "Up to 6.17x per-GPU output throughput" against EP 4 and EP 8: figure 8, 8k/1k with MTP.
constexpr double kPublishedGain = 6.17;
constexpr const char* kPublishedLengths = "8192/1024";

struct Options {
  std::vector<std::string> reports;
  std::string model;
  std::vector<std::string> hardware = {"gb200"};
  StatisticsOptions statistics;
  std::string holdout;
  std::vector<std::string> lengths = {"1024/1024", "4096/1024", "8192/1024"};
  std::vector<int> ep = {4, 8, 16, 32};
  std::vector<int> baselines = {4, 8};
  std::vector<std::string> by = {"ep", "drafts"};
  std::string layouts = "dep";
  std::optional<double> acceptance;
  std::optional<int> drafts_max;
  advise::Choices choices;
  PrecisionOption precision;
  FigureOutput output;
};

// Points of one chart that are drawn together. machine: the hardware of predicted ones.
struct Placed {
  std::string machine;
  SweepPoint point;
};

struct Group {
  std::string machine;
  int ep = 1;
  std::string drafts;
  std::vector<SweepPoint> points;
};

// ---- points ----

struct Lengths {
  int input = 0, output = 0;
};

Result<Lengths> read_lengths(const std::string& text) {
  Lengths lengths;
  const auto read = [](std::string_view part, int* value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *value);
    return error == std::errc() && end == part.data() + part.size() && *value >= 1;
  };
  const size_t slash = text.find('/');
  if (slash == std::string::npos ||
      !read(std::string_view(text).substr(0, slash), &lengths.input) ||
      !read(std::string_view(text).substr(slash + 1), &lengths.output)) {
    return invalid_input(fmt::format(
        "--lengths: expected tokens of a prompt and of an answer, as 1024/1024; found \"{}\"",
        text));
  }
  return lengths;
}

// What the text means by large EP: every rank has requests of its own, and all share the experts.
bool is_shown(const cost::Layout& layout, const Options& options) {
  if (std::ranges::find(options.ep, layout.ep) == options.ep.end()) return false;
  if (options.layouts == "all") return true;
  return layout.attention_dp && layout.expert_slices == 1 && layout.stages == 1 &&
         layout.context == 1;
}

SweepPoint point_of(const advise::Candidate& each, const std::string& lengths) {
  const cost::Layout& layout = each.layout;
  return {.ranks = layout.num_ranks(),
          .ep = layout.ep,
          .drafts = layout.drafts == 0
                        ? ""
                        : fmt::format("{} draft{}", layout.drafts, layout.drafts == 1 ? "" : "s"),
          .layout = text_of(layout),
          .lengths = lengths,
          .predicted = true,
          .tokens_per_user = each.tokens_per_user,
          .tokens_per_rank = each.tokens_per_rank};
}

struct Prediction {
  std::vector<Placed> points;
  std::vector<std::string> notes;
};

Status predict_on(const Options& options, const cost::Hardware& hardware,
                  const model::ModelConfig& config, const Loads& loads, Prediction* prediction) {
  for (const std::string& text : options.lengths) {
    WIDEEP_TRY_ASSIGN(const Lengths lengths, read_lengths(text));
    advise::Workload workload{.isl = lengths.input, .osl = lengths.output};
    workload.acceptance = options.acceptance.value_or(0.0);
    WIDEEP_TRY_ASSIGN(const advise::Advice advice, advise::advise({.hardware = hardware,
                                                                   .config = config,
                                                                   .planned = loads.planned,
                                                                   .judged = loads.judged,
                                                                   .workload = workload,
                                                                   .choices = options.choices}));
    size_t found = 0;
    double error = 0.0;
    for (const advise::Candidate& each : advice.all) {
      if (!is_shown(each.layout, options)) continue;
      prediction->points.push_back({hardware.name, point_of(each, text)});
      error = std::max(error, each.error);
      ++found;
    }
    if (found == 0) {
      return invalid_input(fmt::format(
          "no layout of EP {} fits the memory of {} with {}: give larger sizes with --ep, or "
          "--layouts all",
          fmt::join(options.ep, ", "), hardware.name, text));
    }
    prediction->notes.push_back(
        fmt::format("predicted, {}, {}: {} points, each within about {:.0f} % (docs/advisor.md)",
                    hardware.name, text, found, 100.0 * error));
  }
  return {};
}

Result<Prediction> predict(Options options) {
  if (options.acceptance) options.choices.max_drafts = options.drafts_max.value_or(3);
  if (const auto format = options.precision.format()) options.choices.formats = {*format};
  options.choices.max_ranks =
      std::max(options.choices.max_ranks, *std::ranges::max_element(options.ep));
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, read_config_of_experts(options.model));
  WIDEEP_TRY_ASSIGN(const Loads loads, read_loads(options.statistics, options.holdout, config));
  Prediction prediction;
  for (const std::string& name : options.hardware) {
    WIDEEP_TRY_ASSIGN(const cost::Hardware hardware, find_hardware(name, options.choices.formats));
    for (const auto format : options.choices.formats) {
      if (hardware.supports(format)) continue;
      return invalid_input(fmt::format("--dtype: {} has no products of {}", hardware.name,
                                       kernels::weight_format_name(format)));
    }
    Options bounded = options;
    if (const std::string line = advise::bound_tokens(hardware, &bounded.choices); !line.empty()) {
      log::warn("{}", line);
    }
    WIDEEP_TRY(predict_on(bounded, hardware, config, loads, &prediction));
  }
  prediction.notes.push_back("imbalance of the predicted: " + loads.text);
  return prediction;
}

// ---- charts ----

bool is_grouped_by(const Options& options, const char* key) {
  return std::ranges::find(options.by, key) != options.by.end();
}

// A name for what is drawn in one colour.
std::string name_of(const Options& options, const Placed& placed) {
  const SweepPoint& point = placed.point;
  std::vector<std::string> parts;
  if (is_grouped_by(options, "ep")) parts.push_back(fmt::format("EP {}", point.ep));
  if (is_grouped_by(options, "drafts") && !point.drafts.empty()) parts.push_back(point.drafts);
  if (is_grouped_by(options, "layout") && !point.layout.empty()) parts.push_back(point.layout);
  if (point.predicted) {
    parts.push_back("predicted" + (placed.machine.empty() ? "" : ", " + placed.machine));
  }
  return parts.empty() ? "all" : fmt::format("{}", fmt::join(parts, ", "));
}

// By name, in the order of EP, drafts and machine.
std::vector<std::pair<std::string, Group>> groups_of(const Options& options,
                                                     const std::vector<Placed>& points) {
  std::map<std::string, Group> by_name;
  for (const Placed& placed : points) {
    Group& group = by_name[name_of(options, placed)];
    if (group.points.empty()) {
      group.machine = placed.machine;
      group.ep = placed.point.ep;
      group.drafts = placed.point.drafts;
    }
    group.points.push_back(placed.point);
  }
  std::vector<std::pair<std::string, Group>> groups(by_name.begin(), by_name.end());
  std::ranges::sort(groups, [](const auto& a, const auto& b) {
    return std::tie(a.second.machine, a.second.drafts, a.second.ep, a.first) <
           std::tie(b.second.machine, b.second.drafts, b.second.ep, b.first);
  });
  return groups;
}

Chart chart_of(Chart::Kind kind, const std::string& title) {
  return {.kind = kind,
          .title = title,
          .x_label = "tokens/s of a user",
          .y_label = "tokens/s of a rank"};
}

Series series_of(const std::string& name, const std::vector<SweepPoint>& points) {
  Series series{.name = name};
  for (const SweepPoint& point : points) {
    series.x.push_back(point.tokens_per_user);
    series.y.push_back(point.tokens_per_rank);
  }
  return series;
}

std::string lengths_text(const std::string& lengths) {
  return lengths.empty() ? "lengths not said" : lengths + " tokens";
}

// The number of the text's figure with these lengths, for its title.
std::string number_of(const std::string& lengths, bool has_drafts) {
  if (lengths == kPublishedLengths) return has_drafts ? "Figure 8: " : "Figure 7: ";
  if (has_drafts) return "";
  if (lengths == "1024/1024") return "Figure 5: ";
  return lengths == "4096/1024" ? "Figure 6: " : "";
}

// Points of these EP sizes, on one machine; drafts or not.
std::vector<SweepPoint> points_of(const std::vector<Placed>& points, const std::string& machine,
                                  const std::vector<int>& ep) {
  std::vector<SweepPoint> found;
  for (const Placed& placed : points) {
    if (placed.machine != machine) continue;
    if (std::ranges::find(ep, placed.point.ep) != ep.end()) found.push_back(placed.point);
  }
  return found;
}

void add_gains(const Options& options, const std::string& lengths,
               const std::vector<Placed>& points, Table* table) {
  std::map<std::string, std::vector<int>> sizes;  // by machine
  bool has_drafts = false;
  for (const Placed& placed : points) {
    std::vector<int>& of = sizes[placed.machine];
    if (std::ranges::find(of, placed.point.ep) == of.end()) of.push_back(placed.point.ep);
    has_drafts = has_drafts || !placed.point.drafts.empty();
  }
  for (auto& [machine, all] : sizes) {
    std::ranges::sort(all);
    const std::vector<SweepPoint> base = points_of(points, machine, options.baselines);
    if (base.empty()) continue;
    for (const int ep : all) {
      if (std::ranges::find(options.baselines, ep) != options.baselines.end()) continue;
      const measure::FrontGain gain = measure::largest_gain(points_of(points, machine, {ep}), base);
      const bool is_published = has_drafts && lengths == kPublishedLengths;
      table->rows.push_back(
          {lengths, machine.empty() ? "measured" : machine, ep,
           gain.ratio > 0.0 ? nlohmann::ordered_json(gain.ratio) : nlohmann::ordered_json(nullptr),
           gain.ratio > 0.0 ? nlohmann::ordered_json(gain.tokens_per_user)
                            : nlohmann::ordered_json(nullptr),
           is_published ? nlohmann::ordered_json(kPublishedGain)
                        : nlohmann::ordered_json(nullptr)});
    }
  }
}

Table front_table(const std::string& lengths,
                  const std::vector<std::pair<std::string, Group>>& groups) {
  Table table{.title = fmt::format("Fronts, {}", lengths_text(lengths)),
              .columns = {"series", "tokens/s of a user", "tokens/s of a rank", "ranks", "layout"}};
  for (const auto& [name, group] : groups) {
    for (const SweepPoint& point : measure::front_of(group.points)) {
      table.rows.push_back({name, point.tokens_per_user, point.tokens_per_rank, point.ranks,
                            point.layout.empty() ? nlohmann::ordered_json(nullptr)
                                                 : nlohmann::ordered_json(point.layout)});
    }
  }
  return table;
}

Figure figure_of(const Options& options, const std::vector<Placed>& points) {
  Figure figure{.name = "pareto",
                .title = "Throughput of a rank over the speed of a user",
                .source = "blog 2, figures 5 to 8"};
  std::vector<std::string> all_lengths;  // in the order of the points
  for (const Placed& placed : points) {
    if (std::ranges::find(all_lengths, placed.point.lengths) == all_lengths.end()) {
      all_lengths.push_back(placed.point.lengths);
    }
  }
  Table gains{.title = fmt::format("Most tokens of a rank, as a multiple of EP {}, at a speed of "
                                   "users that both reach",
                                   fmt::join(options.baselines, " or ")),
              .columns = {"lengths", "machine", "EP", "at most, ×", "at tokens/s of a user",
                          "published, ×"}};
  std::vector<Table> fronts;
  for (const std::string& lengths : all_lengths) {
    std::vector<Placed> of;
    bool has_drafts = false;
    for (const Placed& placed : points) {
      if (placed.point.lengths != lengths) continue;
      of.push_back(placed);
      has_drafts = has_drafts || !placed.point.drafts.empty();
    }
    const auto groups = groups_of(options, of);
    const std::string which = number_of(lengths, has_drafts);
    Chart front =
        chart_of(Chart::kLines, fmt::format("{}fronts, {}", which, lengths_text(lengths)));
    front.hint = "Of each series the points of which no other is better in both.";
    Chart all =
        chart_of(Chart::kPoints, fmt::format("{}all points, {}", which, lengths_text(lengths)));
    for (const auto& [name, group] : groups) {
      front.series.push_back(series_of(name, measure::front_of(group.points)));
      all.series.push_back(series_of(name, group.points));
    }
    figure.charts.push_back(std::move(front));
    figure.charts.push_back(std::move(all));
    fronts.push_back(front_table(lengths, groups));
    add_gains(options, lengths, of, &gains);
  }
  if (!gains.rows.empty()) figure.tables.push_back(std::move(gains));
  figure.tables.insert(figure.tables.end(), fronts.begin(), fronts.end());
  figure.notes.push_back(
      "The text's figures 5 to 8 (DeepSeek-R1 FP4 on GB200 NVL72) are curves without numbers; of "
      "figure 8 it says: up to 6.17 times the output of a GPU of EP 4 and EP 8.");
  return figure;
}

Status check(const Options& options) {
  if (options.reports.empty() && options.model.empty()) {
    return invalid_input(
        "nothing to show: give reports of a sweep, or --model to predict what layouts would do");
  }
  const auto without_model = [&](bool given, const char* option) -> Status {
    if (!given || !options.model.empty()) return {};
    return invalid_input(
        fmt::format("{}: has no effect without --model: only predictions need it", option));
  };
  for (const std::string& text : options.lengths) WIDEEP_TRY(read_lengths(text).status());
  WIDEEP_TRY(without_model(options.acceptance.has_value(), "--acceptance"));
  WIDEEP_TRY(without_model(!options.statistics.path.empty(), "--stats"));
  WIDEEP_TRY(without_model(options.precision.format().has_value(), "--dtype"));
  if (options.drafts_max && !options.acceptance) {
    return invalid_input(
        "--drafts-max: has no effect without --acceptance, the probability that a draft is right");
  }
  return {};
}

Status run(const Options& options) {
  WIDEEP_TRY(check(options));
  WIDEEP_TRY_ASSIGN(auto directories, prepare_figure(options.output));
  std::vector<Placed> points;
  for (const std::string& path : options.reports) {
    WIDEEP_TRY_ASSIGN(const std::vector<SweepPoint> read, measure::read_sweep_points(path));
    for (const SweepPoint& point : read) points.push_back({"", point});
  }
  std::vector<std::string> notes;
  if (!options.model.empty()) {
    WIDEEP_TRY_ASSIGN(Prediction prediction, predict(options));
    points.insert(points.end(), prediction.points.begin(), prediction.points.end());
    notes = std::move(prediction.notes);
  }
  Figure figure = figure_of(options, points);
  figure.notes.insert(figure.notes.begin(), notes.begin(), notes.end());
  return show_figure(figure, options.output);
}

void add_prediction_options(command_line::Command command, Options* options) {
  command
      .add_option("--model", options->model,
                  "Predict: a model directory, a GGUF file, or a config.json alone")
      .model();
  command
      .add_option("--hardware", options->hardware,
                  "Descriptions of hardware: shipped ones by name, files, or \"this\"")
      .separate_values_by(',')
      .one_value_each()  // a report may follow
      .show_default();
  add_statistics_options(command, &options->statistics, true);
  add_holdout_option(command, &options->holdout);
  command
      .add_option("--lengths", options->lengths,
                  "Predict for tokens of prompts and answers: A/B,C/D")
      .separate_values_by(',')
      .one_value_each()  // a report may follow
      .show_default();
  command.add_option("--ep", options->ep, "Predict for sizes of expert parallelism: A,B,C")
      .separate_values_by(',')
      .one_value_each()  // a report may follow
      .range(1, 1 << 16)
      .show_default();
  command
      .add_option("--layouts", options->layouts,
                  "Predict for attention DP over the EP ranks alone (dep), or for every layout "
                  "with such an EP size (all)")
      .one_of({"dep", "all"})
      .show_default();
  command
      .add_option("--acceptance", options->acceptance,
                  "Also predict drafts, each right with this probability if those before it are")
      .range(0.0, 1.0);
  command.add_option("--drafts-max", options->drafts_max, "Most drafts of a request (default: 3)")
      .range(1, 8);
  command
      .add_option("--max-num-tokens", options->choices.max_num_tokens,
                  "Tokens of a rank's iteration")
      .range(1, 1 << 20)
      .show_default();
  add_precision_option(command, &options->precision);
}

}  // namespace

void add_figure_pareto_command(command_line::Command figures, Status* status) {
  const command_line::Command command = figures.add_command(
      "pareto", "Throughput of a rank over the speed of a user: measured by sweeps, and predicted");
  auto options = std::make_shared<Options>();
  command
      .add_option("reports", options->reports,
                  "Reports (JSON) of bench throughput, serving and model and of advise, and "
                  "iteration logs (.jsonl)")
      .path();
  add_prediction_options(command, options.get());
  command
      .add_option("--by", options->by,
                  "What each series has in common: ep, drafts and layout, or some of them")
      .separate_values_by(',')
      .one_value_each()  // a report may follow
      .one_of({"ep", "drafts", "layout"})
      .show_default();
  command
      .add_option("--baselines", options->baselines,
                  "EP sizes that the table compares the others with: A,B")
      .separate_values_by(',')
      .one_value_each()  // a report may follow
      .range(1, 1 << 16)
      .show_default();
  add_figure_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
