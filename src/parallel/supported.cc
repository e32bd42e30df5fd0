// SPDX-License-Identifier: Apache-2.0
// What a configuration may ask for and wideep does not do yet.
#include <fmt/format.h>

#include <array>

#include "parallel/parallel_config.h"

namespace wideep::parallel {
namespace {

struct Limit {
  bool exceeded;
  std::string message;
};

std::string not_built(const char* key, int found, const char* what) {
  return fmt::format("{}: {} is not built yet: expected 1, found {}", key, what, found);
}

// Both unset means moe_ep 1 and moe_tp the rest, which is rarely what was wanted.
std::string moe_tp_message(const ParallelSizes& sizes) {
  return fmt::format(
      "moe_tensor_parallel_size: sharded experts are not built yet: expected 1, found {} (filled "
      "in "
      "where it is not set); set moe_expert_parallel_size: {}",
      sizes.moe_tp, sizes.tp);
}

std::array<Limit, 4> size_limits(const ParallelSizes& sizes) {
  return {{
      {sizes.pp > 1, not_built("pipeline_parallel_size", sizes.pp, "pipeline parallelism")},
      {sizes.cp > 1, not_built("context_parallel_size", sizes.cp, "context parallelism")},
      {sizes.moe_cluster > 1,
       not_built("moe_cluster_parallel_size", sizes.moe_cluster, "a cluster of MoE ranks")},
      {sizes.moe_tp > 1, moe_tp_message(sizes)},
  }};
}

std::array<Limit, 3> feature_limits(const ParallelConfig& config) {
  const bool balance = config.attention_dp_config && config.attention_dp_config->enable_balance;
  return {{
      {config.enable_chunked_prefill == false,
       "enable_chunked_prefill: prompts are always prefilled in chunks of at most max_num_tokens; "
       "raise max_num_tokens to the longest prompt and remove this key or set it to true"},
      {config.enable_lm_head_tp_in_adp,
       "enable_lm_head_tp_in_adp: a sharded output projection is not built yet; set it to false"},
      {balance,
       "attention_dp_config.enable_balance: waiting for evenly filled ranks is not built yet; set "
       "it to false"},
  }};
}

}  // namespace

Status check_supported(const ParallelConfig& config) {
  const auto refuse_exceeded = [&](const auto& limits) {
    for (const Limit& limit : limits) {
      if (limit.exceeded) return invalid_input(limit.message).at(config.name);
    }
    return Status();
  };
  const Status sizes = refuse_exceeded(size_limits(config.sizes));
  return sizes.ok() ? refuse_exceeded(feature_limits(config)) : sizes;
}

}  // namespace wideep::parallel
