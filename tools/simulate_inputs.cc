// SPDX-License-Identifier: Apache-2.0
//
// Where statistics have several iterations, placements are planned on some and judged by others: on
// the load that it was planned for, any planner looks perfect. Where there are none, all experts
// count as alike, with a warning, since no model's are. Layers that the model does not have are
// left out.
#include "simulate_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/progress.h"
#include "base/try.h"
#include "cost/expert_load.h"
#include "formats/files.h"
#include "measure/calibrate/calibrate.h"
#include "model/model_division.h"
#include "recordings/held_out.h"
#include "recordings/statistics_load.h"

namespace wideep::tools {

void add_model_and_hardware(command_line::Command command, std::string* model,
                            std::string* hardware) {
  command.add_option("--model", *model, "Model directory, GGUF file or config.json")
      .model()
      .required();
  command
      .add_option(
          "--hardware", *hardware,
          "Name of a shipped description, a file (doctor --write-hardware), or this: measures")
      .required();
}

Result<model::ModelConfig> read_config(const std::string& path) {
  if (!std::filesystem::is_regular_file(path) || !path.ends_with(".json")) {
    return model::read_model_config(path);
  }
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
  return model::parse_model_config(text, path);
}

Result<model::ModelConfig> read_config_of_experts(const std::string& path) {
  WIDEEP_TRY_ASSIGN(model::ModelConfig config, read_config(path));
  if (config.has_experts()) return config;
  return invalid_input(fmt::format(
      "--model: expected a model with experts, found {}, all of whose layers are dense", path));
}

namespace {

class ProgressLine : public measure::CalibrationView {
 public:
  void model_measured(int /*done*/, int all) override {
    if (!progress_) progress_.emplace("measuring this machine", all, "models");
    progress_->step();
  }

 private:
  std::optional<base::Progress> progress_;
};

}  // namespace

Result<cost::Hardware> measure_hardware(std::vector<kernels::WeightFormat> formats) {
  using kernels::WeightFormat;
  if (formats.empty()) {
    formats = {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kInt8, WeightFormat::kInt4};
  }
  ProgressLine progress;
  WIDEEP_TRY_ASSIGN(const measure::Calibration found,
                    measure::calibrate({.formats = std::move(formats)}, progress));
  log::info(
      "measured this machine: constants are within {:.0f} % (experts) and {:.0f} % (other parts) "
      "of "
      "half of the measurements",
      100.0 * found.errors.experts, 100.0 * found.errors.dense);
  return found.hardware;
}

Result<cost::Hardware> find_hardware(const std::string& name,
                                     std::vector<kernels::WeightFormat> formats) {
  if (name == "this") return measure_hardware(std::move(formats));
  return std::filesystem::exists(name) ? cost::read_hardware(name) : cost::shipped_hardware(name);
}

void keep_layers(const std::vector<int>& layers, balance::WindowedLoad* windows) {
  balance::WindowedLoad kept{.num_experts = windows->num_experts,
                             .iterations_per_window = windows->iterations_per_window};
  for (size_t i = 0; i < windows->layers.size(); ++i) {
    if (!std::ranges::binary_search(layers, windows->layers[i])) continue;
    kept.layers.push_back(windows->layers[i]);
    kept.load.push_back(std::move(windows->load[i]));
  }
  *windows = std::move(kept);
}

void add_holdout_option(command_line::Command command, std::string* holdout) {
  command.add_option(
      "--holdout", *holdout,
      "Plan on the iterations before, judge by these: the last FRACTION, or a second "
      "FILE of statistics (default: 0.5 if there are several iterations)");
}

Result<Loads> read_loads(const StatisticsOptions& options, const std::string& holdout) {
  WIDEEP_TRY_ASSIGN(SplitStatistics split, read_split_statistics(options, holdout));
  if (!split.held_out && split.planned_on.num_iterations() > 1) {
    WIDEEP_TRY_ASSIGN(recordings::HeldOut halves, recordings::hold_out_last(split.planned_on, 0.5));
    split = {.planned_on = std::move(halves.earlier), .held_out = std::move(halves.later)};
  }
  Loads loads{.planned = recordings::model_load(split.planned_on)};
  const int planned = split.planned_on.num_iterations();
  constexpr int kMaxJudging = 8;  // windows
  const recordings::ExpertStatistics& judging = split.held_out ? *split.held_out : split.planned_on;
  const int each = (judging.num_iterations() + kMaxJudging - 1) / kMaxJudging;
  WIDEEP_TRY_ASSIGN(loads.windows, recordings::windowed_load(judging, each));
  if (!split.held_out) {
    loads.judged = loads.planned;
    loads.text =
        "placements are judged by the statistics that they are planned on, a single "
        "iteration; --holdout FILE judges them by others";
    return loads;
  }
  loads.judged = recordings::model_load(*split.held_out);
  loads.text = fmt::format("placements planned on {} iteration{}, judged by {} other{}", planned,
                           planned == 1 ? "" : "s", split.held_out->num_iterations(),
                           split.held_out->num_iterations() == 1 ? "" : "s");
  return loads;
}

namespace {

balance::ModelLoad only_layers(const balance::ModelLoad& all, const std::vector<int>& layers) {
  balance::ModelLoad load{.num_experts = all.num_experts};
  for (size_t i = 0; i < all.layers.size(); ++i) {
    if (!std::ranges::binary_search(layers, all.layers[i])) continue;
    load.layers.push_back(all.layers[i]);
    load.load.push_back(all.load[i]);
  }
  return load;
}

}  // namespace

Result<Loads> read_loads(const StatisticsOptions& options, const std::string& holdout,
                         const model::ModelConfig& config) {
  const std::vector<int> layers = model::moe_layers(config);
  if (options.path.empty()) {
    if (!holdout.empty()) {
      return invalid_input("--holdout: has no effect without --stats; give both or neither");
    }
    if (config.has_experts()) {
      log::warn("no --stats: all experts are taken to be chosen equally often, as they never are");
    }
    const balance::ModelLoad even = cost::uniform_load(config.routing.num_experts, layers);
    return Loads{.planned = even,
                 .judged = even,
                 .text = config.has_experts()
                             ? "no statistics: all experts are taken to be chosen equally often"
                             : "none: all layers of the model are dense",
                 .is_known = false};
  }
  if (!config.has_experts()) {
    return invalid_input(
        "--stats: the model has no experts (all its layers are dense); leave it out");
  }
  WIDEEP_TRY_ASSIGN(Loads loads, read_loads(options, holdout));
  loads.planned = only_layers(loads.planned, layers);
  loads.judged = only_layers(loads.judged, layers);
  keep_layers(layers, &loads.windows);
  return loads;
}

}  // namespace wideep::tools
