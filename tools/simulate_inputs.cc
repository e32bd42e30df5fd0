// SPDX-License-Identifier: Apache-2.0
#include "simulate_inputs.h"

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/progress.h"
#include "base/try.h"
#include "formats/files.h"
#include "recordings/statistics_load.h"
#include "run/layouts.h"
#include "simulate/calibrate.h"
#include "simulate/expert_load.h"

namespace wideep::tools {

void add_model_and_hardware(command_line::Command command, std::string* model,
                            std::string* hardware) {
  command.add_option("--model", *model, "Model directory, GGUF file or config.json").required();
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

namespace {

class ProgressLine : public simulate::CalibrationView {
 public:
  void model_measured(int /*done*/, int all) override {
    if (!progress_) progress_.emplace("measuring this machine", all, "models");
    progress_->step();
  }

 private:
  std::optional<base::Progress> progress_;
};

}  // namespace

Result<simulate::Hardware> measure_hardware() {
  using kernels::WeightFormat;
  ProgressLine progress;
  WIDEEP_TRY_ASSIGN(const simulate::Calibration found,
                    simulate::calibrate({.formats = {WeightFormat::kBf16, WeightFormat::kFp8,
                                                     WeightFormat::kInt8, WeightFormat::kInt4}},
                                        progress));
  log::info(
      "measured this machine: constants are within {:.0f} % (experts) and {:.0f} % (other parts) "
      "of "
      "half of the measurements",
      100.0 * found.errors.experts, 100.0 * found.errors.dense);
  return found.hardware;
}

Result<simulate::Hardware> find_hardware(const std::string& name) {
  if (name == "this") return measure_hardware();
  return std::filesystem::exists(name) ? simulate::read_hardware(name)
                                       : simulate::shipped_hardware(name);
}

Result<balance::ModelLoad> read_load(const StatisticsOptions& options,
                                     const model::ModelConfig& config) {
  const std::vector<int> layers = run::moe_layers(config);
  if (options.path.empty()) {
    log::warn("no --stats: all experts are taken to be chosen equally often, as they never are");
    return simulate::uniform_load(config.routing.num_experts, layers);
  }
  WIDEEP_TRY_ASSIGN(const recordings::ExpertStatistics statistics, read_statistics(options));
  const balance::ModelLoad all = recordings::model_load(statistics);
  balance::ModelLoad load{.num_experts = all.num_experts};
  for (size_t i = 0; i < all.layers.size(); ++i) {
    if (!std::ranges::binary_search(layers, all.layers[i])) continue;
    load.layers.push_back(all.layers[i]);
    load.load.push_back(all.load[i]);
  }
  return load;
}

}  // namespace wideep::tools
