// SPDX-License-Identifier: Apache-2.0
//
// Small functions from settings to sizes, which plan_run() puts together. They round up wherever
// ranks share something: the largest share decides, so that buffers are equal on all ranks and an
// offset means the same in each segment. What does not divide is refused here, by the key of the
// settings, before anything is allocated.
#include "run/layouts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "engine/yield.h"
#include "ep/strategy.h"
#include "kernels/packed_matrix.h"
#include "model/parts/rank_experts.h"
#include "parallel/token_shares.h"

namespace wideep::run {

using kernels::PackedShape;
using kernels::WeightFormat;
using model::ModelConfig;

Result<model::MoeOptions> moe_options(const parallel::ParallelConfig& settings,
                                      const ModelConfig& config, WeightFormat experts) {
  model::MoeOptions options{.row_dtype = kernels::row_dtype(experts)};
  const auto take = [&](const char* key, const std::string& dtype,
                        std::optional<kernels::RowFormat>* format) -> Status {
    if (dtype == "BF16") *format = kernels::RowFormat::kBf16;
    if (dtype == "FP8") *format = kernels::RowFormat::kFp8;
    if (dtype == "NVFP4") *format = kernels::RowFormat::kNvfp4;
    if (!*format) return {};
    const Status fits = kernels::check_row_format(**format, config.expert_hidden_size());
    return fits.ok() ? fits : fits.at(key).at(settings.name);
  };
  WIDEEP_TRY(
      take("moe_config.dispatch_dtype", settings.moe_config.dispatch_dtype, &options.dispatch));
  WIDEEP_TRY(take("moe_config.combine_dtype", settings.moe_config.combine_dtype, &options.combine));
  return options;
}

// Each rank computes whole heads, equally many.
static Status check_heads(const parallel::ParallelConfig& settings, int heads, int kv_heads) {
  const int tp = settings.sizes.tp;
  if (heads % tp != 0) {
    return invalid_input(
        fmt::format("{}: tensor_parallel_size: expected a divisor of the model's {} attention "
                    "heads, found {}; set enable_attention_dp: true where none fits",
                    settings.name, heads, tp));
  }
  if (tp % kv_heads == 0 || kv_heads % tp == 0) return {};
  return invalid_input(
      fmt::format("{}: tensor_parallel_size: expected a divisor or a multiple of the model's {} "
                  "heads of keys and values, found {}; set enable_attention_dp: true where none "
                  "fits",
                  settings.name, kv_heads, tp));
}

Result<std::optional<model::JointLayout>> joint_layout(const parallel::ParallelConfig& settings,
                                                       const ModelConfig& config,
                                                       int max_num_tokens, int max_logit_rows) {
  const int tp = settings.sizes.tp;
  if (tp == 1 || settings.enable_attention_dp) return std::optional<model::JointLayout>();
  for (int i = 0; i < config.num_attention_kinds(); ++i) {
    const model::AttentionKind kind = config.attention_kind(i);
    WIDEEP_TRY(check_heads(settings, kind.num_heads, config.is_mla() ? tp : kind.num_kv_heads));
  }
  return std::optional(model::JointLayout(
      config, parallel::tokens_of_rank(settings, max_num_tokens), max_logit_rows));
}

std::optional<model::JointLayout> shard_layout(const ModelConfig& config,
                                               const ep::DispatchShape& shape, Dtype row_dtype) {
  if (shape.num_slices == 1) return {};
  return model::JointLayout::of_experts(config, row_dtype, model::RankExperts::between_rows(shape));
}

size_t holdings_bytes(size_t num_layers, size_t num_experts, size_t slots_per_rank) {
  return sizeof(HoldingsHeader) +
         num_layers * (num_experts * sizeof(double) + slots_per_rank * sizeof(int32_t));
}

size_t whole_memory_pages(size_t bytes) {
  constexpr size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

ep::Combine combine_of(const parallel::ParallelConfig& settings) {
  return settings.moe_config.combine == "REDUCED" ? ep::Combine::kReduced : ep::Combine::kExact;
}

Result<ep::Strategy> dispatch_strategy(const parallel::ParallelConfig& settings,
                                       ep::Strategy cheaper, bool crosses_nodes) {
  const std::string& setting = settings.moe_config.dispatch_strategy;
  if (setting == "ALL_GATHER" && crosses_nodes) {
    return invalid_input(
        fmt::format("{}: moe_config.dispatch_strategy: expected auto or push where ranks that "
                    "share experts are "
                    "on several nodes, found all_gather, for which rows are read in shared memory",
                    settings.name));
  }
  if (setting == "ALL_GATHER") return ep::Strategy::kAllGather;
  return setting == "PUSH" || crosses_nodes ? ep::Strategy::kDispatch : cheaper;
}

ep::DispatchShape dispatch_shape(const ModelConfig& config, const DispatchOptions& options,
                                 WeightFormat format) {
  return dispatch_shape(config, options,
                        model::MoeOptions{.row_dtype = kernels::row_dtype(format)});
}

ep::DispatchShape dispatch_shape(const ModelConfig& config, const DispatchOptions& options,
                                 const model::MoeOptions& moe) {
  const int num_slices = options.num_slices;
  // Results come back in slices; the buffers have room for the longest one.
  const int hidden = config.expert_hidden_size();
  const int panels = kernels::PackedShape{.n = hidden}.num_panels();
  const int columns =
      std::min((panels + num_slices - 1) / num_slices * kernels::kPanelWidth, hidden);
  ep::DispatchShape shape{.ep_size = options.num_ranks,
                          .num_experts = config.routing.num_experts,
                          .slots_per_rank = options.num_slots / (options.num_ranks / num_slices),
                          .top_k = config.routing.top_k,
                          .row_bytes = kernels::row_bytes(moe.dispatch_format(), hidden),
                          .result_bytes = kernels::row_bytes(moe.combine_format(), columns),
                          .max_tokens = options.max_num_tokens,
                          .max_group_tokens = options.moe_max_num_tokens.value_or(0),
                          .combine = options.combine,
                          .num_slices = num_slices};
  // If an iteration may need several chunks, buffers for two calls let the rows of the next chunk
  // travel while the results of this one come back.
  const int64_t all_tokens = int64_t{options.num_ranks} * options.max_num_tokens;
  if (shape.max_rows() < all_tokens) shape.calls_in_flight = 2;
  shape.strategy = ep::choose_strategy(shape).strategy;
  return shape;
}

Dtype cache_dtype(std::string_view setting, WeightFormat format) {
  if (setting == "FP8") return Dtype::kF8E4M3;
  return setting == "BF16" ? Dtype::kBf16 : kernels::row_dtype(format);
}

engine::PipelineLayout pipeline_layout(const parallel::ParallelConfig& settings,
                                       const ModelConfig& config, int max_num_tokens,
                                       int max_batch_size, int max_draft_len) {
  return {.num_stages = settings.sizes.pp,
          .micro_batches = settings.micro_batches(),
          .max_tokens = parallel::dispatched_tokens(settings, max_num_tokens),
          .max_words = engine::words_of_yields(max_batch_size, max_draft_len),
          .hidden = config.stream_width()};
}

engine::SpeculationOptions speculation_options(const parallel::ParallelConfig& settings) {
  using Method = engine::SpeculationOptions::Method;
  if (!settings.speculative_config) return {};
  const parallel::SpeculativeConfig& config = *settings.speculative_config;
  using Type = parallel::SpeculativeConfig::Type;
  const auto method = [&] {
    if (config.type == Type::kMtp) return Method::kMtp;
    return config.type == Type::kNgram ? Method::kNgram : Method::kSuffix;
  };
  const auto to_int = [](const std::optional<int64_t>& value) {
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  };
  engine::SpeculationOptions options{
      .method = method(),
      .max_draft_len = static_cast<int>(config.max_draft_len),
      .ngram = {.max_matching_ngram_size = static_cast<int>(config.max_matching_ngram_size),
                .is_use_oldest = config.is_use_oldest},
      .is_public_pool = config.is_public_pool,
      .max_pool_bytes = static_cast<size_t>(config.max_pool_bytes),
      .max_concurrency = to_int(config.max_concurrency),
      .acceptance_window = to_int(config.acceptance_window),
      .acceptance_length_threshold = config.acceptance_length_threshold,
      .acceptance_rate_window = to_int(config.acceptance_rate_window),
      .acceptance_rate_threshold = config.acceptance_rate_threshold,
      .suffix_threshold = to_int(config.sa_spec_threshold),
      .is_adaptive = config.type == Type::kAuto};
  if (config.relaxed) {
    options.relaxed = {.top_k = static_cast<int>(config.relaxed->topk),
                       .delta = config.relaxed->delta,
                       .begin_token = static_cast<int32_t>(config.relaxed->begin_token),
                       .end_token = static_cast<int32_t>(config.relaxed->end_token)};
  }
  for (const auto& [batch, length] : config.draft_len_schedule) {
    options.draft_len_schedule[static_cast<int>(batch)] = static_cast<int>(length);
  }
  return options;
}

}  // namespace wideep::run
