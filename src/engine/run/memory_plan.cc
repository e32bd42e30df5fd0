// SPDX-License-Identifier: Apache-2.0
#include "run/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/page_pool.h"
#include "kernels/packed_matrix.h"
#include "model/kv_layout.h"
#include "model/model_division.h"
#include "model/parts/compute.h"
#include "model/state_layout.h"
#include "model/tensor_list.h"
#include "run/layouts.h"
#include "weights/expert_record.h"

namespace wideep::run {
namespace {

using kernels::PackedShape;
using kernels::WeightFormat;
using model::LayerForms;
using model::ModelConfig;
using model::ModelForms;
using model::TensorUse;
using parallel::LayerRange;
using weights::MatrixForm;

uint64_t packed_bytes(const MatrixForm& form, int n, int k) { return form.shape(n, k).bytes(); }

uint64_t floats(uint64_t count) { return count * sizeof(float); }

uint64_t gated_mlp_bytes(const MatrixForm& form, int hidden, int intermediate) {
  return weights::ExpertShape{
      .format = form.format, .hidden = hidden, .intermediate = intermediate, .group = form.group}
      .record_bytes();
}

uint64_t expert_bytes(const ModelConfig& config, const ModelForms& forms, int slices) {
  return model::experts_shape(config, forms, slices).record_bytes();
}

// ---- weights ----

// The bytes of a tensor of the list. kv_b is kept as three matrices per head: queries into the
// latent space, values out of it, and keys out of it.
uint64_t tensor_bytes(const ModelConfig& config, const LayerForms& forms, Dtype row_dtype,
                      const model::ListedTensor& tensor) {
  const int n = static_cast<int>(tensor.shape.front()), k = static_cast<int>(tensor.shape.back());
  switch (tensor.use) {
    case TensorUse::kInput:
      return packed_bytes(forms.input, n, k);
    case TensorUse::kGates:
      return packed_bytes(forms.gates, n, k);
    case TensorUse::kQueryB:
      return packed_bytes(forms.q_b, n, k);
    case TensorUse::kIndexQuery:
      return packed_bytes(forms.index_query, n, k);
    case TensorUse::kIndexKey:
      return packed_bytes(forms.index_key, n, k);
    case TensorUse::kOutput:
      return packed_bytes(forms.output, n, k);
    case TensorUse::kPrediction:
      return packed_bytes(forms.prediction, n, k);
    case TensorUse::kFloat:
      return packed_bytes(weights::default_form(WeightFormat::kF32), n, k);
    case TensorUse::kLatent: {
      const MatrixForm part = weights::default_form(row_dtype == Dtype::kF32 ? WeightFormat::kF32
                                                                             : WeightFormat::kBf16);
      const int nope = config.qk_nope_head_dim;
      return static_cast<uint64_t>(config.num_heads) *
             (packed_bytes(part, k, nope) + packed_bytes(part, config.v_head_dim, k) +
              packed_bytes(part, nope, k));
    }
    case TensorUse::kVector:
      return floats(static_cast<uint64_t>(tensor.num_elements()));
    case TensorUse::kEmbedding:
    case TensorUse::kHead:
    case TensorUse::kExpert:
    case TensorUse::kMlp:  // counted as records
      break;
  }
  return 0;
}

uint64_t layer_weights(const ModelConfig& config, const ModelForms& forms, int index) {
  const LayerForms& layer = forms.layers[static_cast<size_t>(index)];
  const int width =
      config.is_moe(index) ? config.shared_intermediate_size : config.dense_intermediate_size;
  uint64_t bytes = width == 0 ? 0 : gated_mlp_bytes(layer.mlp, config.hidden_size, width);
  for (const model::ListedTensor& tensor : model::layer_tensors(config, index)) {
    bytes += tensor_bytes(config, layer, forms.row_dtype, tensor);
  }
  return bytes;
}

// The first stage embeds, the last has the LM head.
uint64_t dense_weights(const ModelConfig& config, const ModelForms& forms, LayerRange layers) {
  const uint64_t hidden = config.hidden_size;
  uint64_t bytes = 0;
  const bool is_last = layers.last == config.num_all_layers();
  // Prediction layers embed too.
  if (layers.first == 0 || (is_last && config.num_prediction_layers > 0)) {
    bytes += hidden * config.vocab_size * dtype_bytes(forms.row_dtype);
  }
  for (int i = layers.first; i < layers.last; ++i) bytes += layer_weights(config, forms, i);
  if (is_last) {
    bytes += packed_bytes(forms.lm_head, config.vocab_size, config.hidden_size) + floats(hidden);
  }
  return bytes;
}

// ---- intermediate results in bytes per token; layers run one at a time ----
//
// These sums follow the scratch buffers of model/ (MixerScratch, MlpRunner, TokenRows,
// ExpertRows) and must change with them; a test compares them with what a forward pass allocates.

// The copy of a row as an operand of the matrix; 0 for float32, which needs no copy.
uint64_t cast_row(const MatrixForm& form, uint64_t width) {
  if (form.format == WeightFormat::kF32) return 0;
  return model::operand_bytes(form.shape(1, static_cast<int>(width)));
}

uint64_t grouped_query_row(const ModelConfig& config, const LayerForms& forms) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t width = uint64_t(config.num_heads) * config.head_dim;
  const uint64_t q_width = config.grouped_query.output_gate ? 2 * width : width;
  const uint64_t kv_width = uint64_t(config.num_kv_heads) * config.head_dim;
  return floats(q_width + width + 2 * kv_width + hidden + config.grouped_query.rotary_dim) +
         std::max(cast_row(forms.input, hidden), cast_row(forms.output, width));
}

uint64_t latent_row(const ModelConfig& config, const LayerForms& forms) {
  const uint64_t hidden = config.hidden_size, heads = config.num_heads;
  const uint64_t q_rank = config.q_lora_rank, kv_rank = config.kv_lora_rank;
  const uint64_t key = kv_rank + config.qk_rope_head_dim, v_width = heads * config.v_head_dim;
  const uint64_t queries = q_rank + heads * config.head_dim + heads * key;
  // The indexer's queries, keys and weights; its scores are of few tokens at a time.
  const auto& indexer = config.indexer;
  const uint64_t index =
      indexer.num_heads == 0
          ? 0
          : uint64_t(indexer.num_heads) * (indexer.head_dim + 1) + indexer.head_dim + indexer.top_k;
  return floats(index + queries + key + heads * kv_rank + v_width + hidden +
                config.qk_rope_head_dim) +
         cast_row(forms.q_b, q_rank) +
         std::max(cast_row(forms.input, hidden), cast_row(forms.output, v_width));
}

uint64_t delta_net_row(const ModelConfig& config, const LayerForms& forms) {
  const model::DeltaNetConfig& net = config.delta_net;
  const uint64_t hidden = config.hidden_size, value_width = net.value_width();
  const uint64_t gates = 2 * uint64_t(net.num_value_heads);
  const uint64_t inputs = net.convolved_width() + value_width + gates;
  return floats((net.fused_projections ? 2 : 1) * inputs + value_width + hidden) +
         std::max({cast_row(forms.input, hidden), cast_row(forms.gates, hidden),
                   cast_row(forms.output, value_width)});
}

uint64_t convolution_row(const ModelConfig& config, const LayerForms& forms) {
  const uint64_t hidden = config.hidden_size;
  return floats(5 * hidden) +
         std::max(cast_row(forms.input, hidden), cast_row(forms.output, hidden));
}

uint64_t mixer_row(const ModelConfig& config, int layer, const LayerForms& forms) {
  switch (config.layers[static_cast<size_t>(layer)].mixer) {
    case model::LayerConfig::Mixer::kAttention:
      return config.is_mla() ? latent_row(config, forms) : grouped_query_row(config, forms);
    case model::LayerConfig::Mixer::kDeltaNet:
      return delta_net_row(config, forms);
    case model::LayerConfig::Mixer::kConvolution:
      return convolution_row(config, forms);
  }
  return 0;
}

// The input of a gated MLP in the operand form; 0 if it already has that form.
uint64_t mlp_operand_row(const MatrixForm& form, uint64_t hidden, Dtype input) {
  const kernels::PackedShape gate = form.shape(1, static_cast<int>(hidden));
  return model::needs_cast(gate, input) ? cast_row(form, hidden) : 0;
}

// The intermediate row between the two products of a gated MLP.
uint64_t between_row(const MatrixForm& form, uint64_t intermediate) {
  const Dtype between = kernels::row_dtype(form.format);
  const bool casts = kernels::takes_quantized_rows(form.format);
  return intermediate * dtype_bytes(between) + (casts ? cast_row(form, intermediate) : 0);
}

// A dense MLP or a shared expert, with its result.
uint64_t dense_mlp_row(const ModelConfig& config, const MatrixForm& form, int intermediate,
                       Dtype input) {
  const uint64_t hidden = config.hidden_size;
  return floats(hidden) + mlp_operand_row(form, hidden, input) +
         between_row(form, static_cast<uint64_t>(intermediate));
}

// Rows in the format in which they are sent; and if that is not the experts' own format, the rows
// that the experts take and return. Assumes balanced ranks: each receives as many rows as it sends.
uint64_t travelling_row(const ModelConfig& config, const ep::DispatchShape& shape,
                        const MatrixForm& experts) {
  const Dtype plain = kernels::row_dtype(experts.format);
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const uint64_t bytes = hidden * dtype_bytes(plain);
  const auto top_k = static_cast<uint64_t>(config.routing.top_k);
  const uint64_t received = std::min(top_k, static_cast<uint64_t>(shape.ep_size));
  const bool reduced = shape.combine == ep::Combine::kReduced;
  uint64_t sum = plain == Dtype::kF32 && shape.row_bytes == bytes ? 0 : shape.row_bytes;
  if (shape.row_bytes != bytes) sum += received * bytes;
  sum += received * mlp_operand_row(experts, hidden, plain);
  if (shape.result_bytes != bytes || reduced) sum += top_k * bytes;
  if (reduced) sum += received * floats(hidden);
  return sum;
}

// Working memory per token. Layers share each buffer, so its size is that of the largest layer.
uint64_t working_row(const ModelConfig& config, const ModelForms& forms,
                     const ep::DispatchShape& shape, LayerRange layers) {
  const uint64_t hidden = config.hidden_size;
  const Dtype plain = forms.row_dtype;
  const bool sent_plain = shape.row_bytes == hidden * dtype_bytes(plain) && !config.weight_on_input;
  uint64_t mixer = 0, dense = 0, shared = 0;
  for (int i = layers.first; i < layers.last; ++i) {
    const LayerForms& layer = forms.layers[static_cast<size_t>(i)];
    mixer = std::max(mixer, mixer_row(config, i, layer));
    if (!config.is_moe(i)) {
      dense = std::max(
          dense, dense_mlp_row(config, layer.mlp, config.dense_intermediate_size, Dtype::kF32));
    } else if (config.shared_intermediate_size > 0) {
      shared = std::max(shared, dense_mlp_row(config, layer.mlp, config.shared_intermediate_size,
                                              sent_plain ? plain : Dtype::kF32));
    }
  }
  const bool predicts = config.num_prediction_layers > 0 && layers.last == config.num_all_layers();
  uint64_t cast = cast_row(forms.lm_head, hidden);
  if (predicts) cast = std::max(cast, cast_row(forms.layers.back().prediction, 2 * hidden));
  const uint64_t streams = floats(2 * hidden) + cast;
  // Assumes balanced ranks, which receive as many rows as they send: top_k per token.
  const uint64_t experts =
      config.routing.top_k *
      between_row(forms.expert_down.value_or(forms.experts), config.moe_intermediate_size);
  // What the layer predicts from, and both halves of its input.
  const uint64_t prediction = predicts ? floats(3 * hidden) : 0;
  const uint64_t weighted = config.weight_on_input ? floats(hidden) : 0;
  const uint64_t moe = floats(uint64_t(config.routing.num_experts)) + weighted +
                       travelling_row(config, shape, forms.experts) + experts;
  return mixer + streams + moe + dense + shared + prediction;
}

}  // namespace

uint64_t MemoryPlan::kv_bytes(uint64_t num_tokens) const {
  return (num_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens * kv_page_bytes;
}

uint64_t MemoryPlan::kv_bytes_of_rank(uint64_t num_tokens) const {
  const uint64_t pages = (num_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens;
  return static_cast<uint64_t>(
             engine::most_pages_of_rank(static_cast<int>(pages), num_groups, turn_pages)) *
         kv_page_bytes;
}

MemoryPlan plan_memory(const ModelConfig& config, const ep::DispatchShape& shape,
                       const ModelForms& forms, Dtype cache,
                       const std::optional<model::JointLayout>& joint,
                       std::optional<LayerRange> of_stage, const engine::PipelineLayout& pipeline) {
  const LayerRange layers = of_stage.value_or(LayerRange{0, config.num_all_layers()});
  const auto moe =
      std::count_if(config.layers.begin() + layers.first, config.layers.begin() + layers.last,
                    [](const model::LayerConfig& layer) { return layer.is_moe; });
  const uint64_t slots = uint64_t(shape.slots_per_rank) * static_cast<uint64_t>(moe);
  const auto shards = shard_layout(config, shape, forms.row_dtype);
  const model::KvLayout kv(config, cache, layers, joint ? shape.ep_size : 1);
  return {.num_ranks = shape.ep_size,
          .dense_weights = dense_weights(config, forms, layers),
          .slots_per_rank = slots * expert_bytes(config, forms, shape.num_slices),
          .symmetric_memory_per_rank = ep::BufferLayout(shape).segment_bytes() + pipeline.bytes(),
          .joint_memory = joint ? joint->bytes() : 0,
          .shard_memory = shards ? uint64_t(shape.num_owners()) * shards->bytes() : 0,
          .working_memory_per_rank =
              static_cast<uint64_t>(joint ? joint->max_tokens : shape.max_tokens) *
              working_row(config, forms, shape, layers),
          .kv_page_bytes = kv.page_bytes(),
          .state_bytes = model::StateLayout(config, layers).bytes()};
}

std::vector<MemoryPlan> plan_stages(const ModelConfig& config, const ep::DispatchShape& shape,
                                    const ModelForms& forms, Dtype cache,
                                    const std::optional<model::JointLayout>& joint,
                                    const engine::PipelineLayout& pipeline, int num_groups,
                                    int turn_pages) {
  std::vector<MemoryPlan> stages;
  for (int stage = 0; stage < pipeline.num_stages; ++stage) {
    const LayerRange layers = model::stage_layers(config, stage, pipeline.num_stages);
    stages.push_back(plan_memory(config, shape, forms, cache, joint, layers, pipeline));
    stages.back().num_groups = num_groups;
    stages.back().turn_pages = turn_pages;
  }
  return stages;
}

uint64_t bytes_without_cache(std::span<const MemoryPlan> stages) {
  uint64_t bytes = 0;
  for (const MemoryPlan& stage : stages) bytes += stage.bytes_without_cache();
  return bytes;
}

uint64_t fewest_state_bytes(std::span<const MemoryPlan> stages) {
  uint64_t bytes = 0;
  for (const MemoryPlan& stage : stages) bytes += stage.all_ranks() * stage.state_bytes;
  return bytes;
}

int state_slots_in(double cache_bytes, uint64_t state_bytes, int running, bool reuses_pages) {
  const double most = cache_bytes / 2 / static_cast<double>(state_bytes);
  const double wanted = static_cast<double>(running) * (reuses_pages ? 2 : 1);
  return static_cast<int>(std::min(most, wanted));
}

MemoryPlan fullest(std::span<const MemoryPlan> stages) {
  MemoryPlan all{.num_ranks = 0};
  for (const MemoryPlan& stage : stages) {
    all.num_ranks += stage.num_ranks;
    all.num_groups = stage.num_groups;
    all.turn_pages = stage.turn_pages;
    all.dense_weights += stage.dense_weights;
    all.joint_memory += stage.joint_memory;
    all.shard_memory += stage.shard_memory;
    all.slots_per_rank = std::max(all.slots_per_rank, stage.slots_per_rank);
    all.symmetric_memory_per_rank =
        std::max(all.symmetric_memory_per_rank, stage.symmetric_memory_per_rank);
    all.working_memory_per_rank =
        std::max(all.working_memory_per_rank, stage.working_memory_per_rank);
    all.kv_page_bytes = std::max(all.kv_page_bytes, stage.kv_page_bytes);
    all.state_bytes = std::max(all.state_bytes, stage.state_bytes);
  }
  return all;
}

MemoryPlan plan_memory(const ModelConfig& config, const ep::DispatchShape& shape,
                       WeightFormat format, Dtype cache) {
  return plan_memory(config, shape, model::uniform_forms(config, format), cache);
}

}  // namespace wideep::run
