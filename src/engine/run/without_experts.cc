// SPDX-License-Identifier: Apache-2.0
#include "run/without_experts.h"

#include <fmt/format.h>

#include "base/try.h"

namespace wideep::run {
namespace {

constexpr const char* kDense = "the model has no experts (all its layers are dense)";

Status refuse(const std::string& what) {
  return invalid_input(fmt::format("{}: {}; leave it out", what, kDense));
}

// What would be recorded of experts, or replaces their router.
Status check_requests(const RunOptions& options) {
  if (options.perfect_router) return refuse("--perfect-router (ENABLE_PERFECT_ROUTER)");
  if (options.routing_log) return refuse("--routing-log");
  if (options.routed_experts) return refuse("--enable-return-routed-experts");
  if (options.statistics || options.records_on_request) return refuse("--expert-statistic-path");
  return {};
}

// TensorRT-LLM, too, divides dense layers by tensor_parallel_size alone.
std::string expert_parallelism(const parallel::ParallelConfig& settings) {
  return fmt::format(
      "{}: moe_expert_parallel_size {} has no effect: {}; {}", settings.name, settings.sizes.moe_ep,
      kDense,
      settings.enable_attention_dp
          ? "each rank computes all layers for its own requests (enable_attention_dp)"
          : "tensor_parallel_size divides the products of all layers");
}

bool differs_from_default(const parallel::MoeConfig& moe) {
  const parallel::MoeConfig plain;
  return moe.max_num_tokens || moe.dispatch_dtype != plain.dispatch_dtype ||
         moe.combine_dtype != plain.combine_dtype || moe.combine != plain.combine ||
         moe.dispatch_strategy != plain.dispatch_strategy;
}

}  // namespace

Result<std::vector<std::string>> settings_without_experts(const RunOptions& options,
                                                          const model::ModelConfig& config) {
  std::vector<std::string> notes;
  if (config.has_experts()) return notes;
  WIDEEP_TRY(check_requests(options));
  const parallel::ParallelConfig& settings = options.parallel;
  const parallel::MoeConfig& moe = settings.moe_config;
  if (moe.load_balancer || moe.load_balancer_path) {
    return refuse(fmt::format("{}: moe_config.load_balancer", settings.name));
  }
  // Of --ranks it is no setting of the user's.
  if (settings.sizes.moe_ep > 1 && settings.name != "--ranks") {
    notes.push_back(expert_parallelism(settings));
  }
  if (differs_from_default(moe)) {
    notes.push_back(fmt::format("{}: moe_config has no effect: {}", settings.name, kDense));
  }
  return notes;
}

}  // namespace wideep::run
