// SPDX-License-Identifier: Apache-2.0
#include "expert_bytes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "model/config/config.h"
#include "model/model_division.h"
#include "run/memory_plan.h"
#include "weights/expert_record.h"

namespace wideep::tools {
namespace {

Result<double> bytes_of_model(const std::string& model_dir, int num_experts,
                              const std::vector<int>& of_statistics) {
  WIDEEP_TRY_ASSIGN(const model::ModelConfig config, model::read_model_config(model_dir));
  if (config.routing.num_experts != num_experts) {
    return invalid_input(
        fmt::format("--model: {}: expected {} experts as in the statistics, found {}", model_dir,
                    num_experts, config.routing.num_experts));
  }
  std::vector<int> layers = model::moe_layers(config);
  // Statistics of a run with prediction layers.
  for (int i = 0; i < config.num_mtp_layers; ++i) layers.push_back(config.num_layers + i);
  for (const int layer : of_statistics) {
    if (!std::binary_search(layers.begin(), layers.end(), layer)) {
      return invalid_input(
          fmt::format("--model: {}: layer {} of the statistics is no MoE layer of the model",
                      model_dir, layer));
    }
  }
  return static_cast<double>(weights::ExpertShape{.format = kernels::WeightFormat::kBf16,
                                                  .hidden = config.expert_hidden_size(),
                                                  .intermediate = config.moe_intermediate_size,
                                                  .activation = config.activation}
                                 .record_bytes());
}

}  // namespace

void add_expert_bytes_options(command_line::Command command, ExpertBytesOptions* options,
                              const std::string& use) {
  const command_line::Option bytes =
      command.add_option("--model-bytes-per-expert", options->bytes_per_expert,
                         "Bytes of one expert's weights in one layer, " + use);
  command
      .add_option("--model", options->model_dir,
                  "A model directory; its config.json gives the size of an expert in bf16")
      .model()
      .excludes(bytes);
}

Result<std::optional<double>> choose_expert_bytes(const ExpertBytesOptions& options,
                                                  int num_experts, const std::vector<int>& layers) {
  const std::optional<double> given = options.bytes_per_expert;
  if (given && !(*given > 0.0 && *given < 1e15)) {
    return invalid_input(fmt::format(
        "--model-bytes-per-expert: expected more than 0 bytes (and less than 10^15), found {}",
        *given));
  }
  if (options.model_dir.empty()) return given;
  WIDEEP_TRY_ASSIGN(const double bytes, bytes_of_model(options.model_dir, num_experts, layers));
  return std::optional<double>(bytes);
}

}  // namespace wideep::tools
