// SPDX-License-Identifier: Apache-2.0
#include "engine/handshake.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/content_hash.h"
#include "base/try.h"
#include "engine/rank_engine.h"

namespace wideep::engine {
namespace {

// As the settings are called where people set them.
constexpr std::array<const char*, SettingWords().size()> kNames = {
    "the version of wideep",
    "the model (config.json, the weights' format or the router)",
    "the kernels (WIDEEP_ISA)",
    "the placement (moe_config.load_balancer)",
    "online balancing (layer_updates_per_iter, spares)",
    "max_num_tokens or moe_config.max_num_tokens",
    "how rows travel (moe_config.dispatch_dtype, combine_dtype, combine)",
    "the parallel sizes, enable_attention_dp, max_batch_size, the prefill chunk, the KV cache or "
    "the threads per rank",
};

uint64_t hash_of(const std::string& text) {
  return base::content_hash(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

std::string model_text(const RankSetup& setup) {
  const model::ModelConfig& c = setup.config;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(c.architecture),
                     c.hidden_size, c.num_layers, c.vocab_size, c.num_heads, c.num_kv_heads,
                     c.head_dim, c.moe_intermediate_size, c.dense_intermediate_size,
                     c.routing.num_experts, c.routing.top_k, static_cast<int>(setup.moe.row_dtype),
                     setup.moe.perfect_router, setup.format ? static_cast<int>(*setup.format) : -1);
}

std::string placement_text(const RankSetup& setup) {
  std::string text;
  for (const auto& [layer, placement] : setup.placement.layers) {
    text += fmt::format("{} {} {}\n", layer, placement.ep_size,
                        fmt::join(placement.slot_to_expert, " "));
  }
  return text;
}

std::string parallel_text(const RankSetup& setup) {
  const parallel::ParallelSizes& sizes = setup.mapping.sizes();
  return fmt::format(" {} {} {} {} {} {}", sizes.tp, sizes.pp, sizes.cp, sizes.moe_tp, sizes.moe_ep,
                     setup.joint.has_value()) +
         fmt::format(" {} {} {} {} {} {} {} {}", setup.limits.max_rank_tokens,
                     setup.limits.turn_pages, setup.limits.reuse_pages,
                     static_cast<int>(setup.limits.policy), setup.limits.balance.enabled,
                     setup.limits.balance.timeout_iters, setup.limits.balance.batching_wait_iters,
                     setup.limits.micro_batches);
}

std::string online_text(const RankSetup& setup) {
  std::string text;
  for (const OnlineParts& stage : setup.online) {
    if (!stage.balances()) continue;
    text += fmt::format("{} {} {}\n", stage.balancer.layers_in_flight, stage.balancer.num_spares,
                        stage.pool->total_bytes());
  }
  return text;
}

}  // namespace

SettingWords setting_words(const RankSetup& setup) {
  const SchedulerLimits& limits = setup.limits;
  SettingWords words = {};
  const auto set = [&](SharedSetting setting, const std::string& text) {
    words[static_cast<size_t>(setting)] = hash_of(text);
  };
  set(SharedSetting::kVersion, WIDEEP_VERSION);
  set(SharedSetting::kModel, model_text(setup));
  set(SharedSetting::kKernels, std::string(setup.kernels.isa));
  set(SharedSetting::kPlacement, placement_text(setup));
  set(SharedSetting::kOnline, online_text(setup));
  set(SharedSetting::kMaxNumTokens,
      fmt::format("{} {}", setup.dispatch.max_tokens, setup.dispatch.max_group_tokens));
  set(SharedSetting::kRows,
      fmt::format("{} {} {} {}", kernels::row_format_name(setup.moe.dispatch_format()),
                  kernels::row_format_name(setup.moe.combine_format()),
                  setup.dispatch.combine == ep::Combine::kReduced, setup.dispatch.num_slices));
  set(SharedSetting::kBatch,
      fmt::format("{} {} {} {} {}", limits.max_batch_size, limits.prefill_chunk, limits.max_pages,
                  static_cast<int>(setup.cache), setup.threads.threads_per_rank) +
          parallel_text(setup));
  return words;
}

Status shake_hands(const SettingWords& mine, transport::Endpoint& endpoint) {
  std::vector<SettingWords> of_ranks;
  WIDEEP_TRY(endpoint.agree(mine, {.what = "its settings"}, &of_ranks));
  for (size_t setting = 0; setting < mine.size(); ++setting) {
    for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
      if (of_ranks[rank][setting] == of_ranks[0][setting]) continue;
      return invalid_input(fmt::format(
          "ranks 0 and {} differ in {}: start all ranks of a group with the same settings", rank,
          kNames[setting]));
    }
  }
  return {};
}

}  // namespace wideep::engine
