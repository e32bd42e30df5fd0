// SPDX-License-Identifier: Apache-2.0
#include "advise/config_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"

namespace wideep::advise {
namespace {

std::string parallel_text(const Candidate& candidate, const Workload& workload,
                          const Choices& choices, const std::string& balancer_path) {
  const cost::Layout& layout = candidate.layout;
  std::string text = fmt::format(
      "# Written by `wideep advise`: {}.\n"
      "# Predicted: {:.1f} ms between tokens, {:.0f} ms to the first, {:.0f} tokens/s of a rank.\n",
      text_of(layout), candidate.tpot * 1e3, candidate.ttft * 1e3, candidate.tokens_per_rank);
  text += fmt::format("tensor_parallel_size: {}\n", layout.tensor_ranks());
  if (layout.context > 1) text += fmt::format("context_parallel_size: {}\n", layout.context);
  if (layout.stages > 1) text += fmt::format("pipeline_parallel_size: {}\n", layout.stages);
  if (!balancer_path.empty()) {
    text += fmt::format("moe_expert_parallel_size: {}\n", layout.ep);
    text += fmt::format("moe_tensor_parallel_size: {}\n", layout.expert_slices);
  }
  text += fmt::format("enable_attention_dp: {}\n", layout.attention_dp);
  text += fmt::format("max_batch_size: {}\n", candidate.batch);
  text += fmt::format("max_num_tokens: {}\n", std::max(choices.max_num_tokens, candidate.batch));
  text += fmt::format("max_seq_len: {}\n", workload.isl + workload.osl);
  text += fmt::format("kv_cache_config: {{dtype: {}}}\n",
                      layout.cache == Dtype::kF8E4M3 ? "FP8" : "BF16");
  if (layout.drafts > 0) {
    text += fmt::format("speculative_config: {{decoding_type: SA, max_draft_len: {}}}\n",
                        layout.drafts);
  }
  if (!balancer_path.empty()) {
    text += fmt::format("moe_config: {{load_balancer: {}}}\n", balancer_path);
  }
  return text;
}

}  // namespace

Result<ConfigFiles> config_files(const Question& question, const Candidate& candidate,
                                 int layer_updates, const std::string& balancer_path) {
  const cost::Layout& layout = candidate.layout;
  const balance::ModelLoad& load = question.planned;
  const bool weighted_shares = question.choices.weighted_shares;
  ConfigFiles files;
  if (!question.config.has_experts()) {
    files.parallel = parallel_text(candidate, question.workload, question.choices, "");
    return files;
  }
  files.placement.num_slots = layout.num_slots;
  files.placement.share_update =
      weighted_shares ? balance::ShareUpdate::kIteration : balance::ShareUpdate::kWindow;
  files.placement.layer_updates_per_iter = layer_updates;
  const balance::PlanShape shape{
      .num_experts = load.num_experts, .ep_size = layout.ep, .num_slots = layout.num_slots};
  const balance::PlannerOptions options{.split = weighted_shares ? balance::Split::kWeighted
                                                                 : balance::Split::kEqual};
  WIDEEP_TRY_ASSIGN(const auto planner, balance::make_planner("wideep", shape, options));
  balance::LayerPlan plan;
  for (size_t i = 0; i < load.layers.size(); ++i) {
    planner->plan(load.load[i], &plan);
    files.placement.layers.emplace(load.layers[i], plan.placement);
  }
  files.parallel = parallel_text(candidate, question.workload, question.choices, balancer_path);
  return files;
}

}  // namespace wideep::advise
