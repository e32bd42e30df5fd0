// SPDX-License-Identifier: Apache-2.0
//
// What a part of a layer costs, from the model's description alone. Each part says it once, in
// <part>_cost.cc beside its code:
//
//   tensors    that it loads from a checkpoint
//   matrices   as it keeps them, packed, and multiplies each token with
//   scratch    intermediate results of a token, which all layers share
//   sequences  what it keeps of each: positions in the KV cache, or a state
//   products   beside those with its matrices: attention over positions, steps of a state
//
// Who needs a sum adds these up: the memory plan (model/model_cost.h, run/memory_plan.h), the work
// of a step (model/model_work.h), the advisor's prediction of its time (cost/step_cost.h).
//
// Thread safety: plain values; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/config/config.h"

namespace wideep::model {

// Decides the form in which a tensor is kept (model_forms.h).
enum class TensorUse {
  kEmbedding,  // rows
  kVector,     // float32: norms, biases, convolutions
  kInput,      // matrices that multiply the layer's input
  kGates,      // small ones of delta nets and of gated latent attention
  kQueryB,     // second ones of products by two: latent attention's q_b, Kimi Delta Attention's
  kLatent,     // latent attention: kv_b, kept as three matrices per head
  kIndexQuery,
  kIndexKey,
  kOutput,      // of the mixer
  kPrediction,  // what a prediction layer makes its input with
  kLatentIn,    // the projections around latent experts, into their rows
  kLatentOut,   // and out of them
  kFloat,       // matrices kept in float32: routers, weights of the indexer's heads
  kMlp,         // of a dense layer or the shared expert
  kExpert,
  kHead,
};

struct ListedTensor {
  std::string name;            // of a PartCost: without the layer's prefix
  std::vector<int64_t> shape;  // [n] or [n, k]
  TensorUse use = TensorUse::kVector;

  int64_t num_elements() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
};

// Matrices of one shape, packed in the form of their use.
struct PackedMatrices {
  TensorUse use = TensorUse::kInput;
  int n = 0, k = 0;
  int count = 1;
};

// A copy of a row as the operand of the matrices of a use; none is made of a row that they take as
// it is.
struct OperandRow {
  TensorUse use = TensorUse::kInput;
  uint64_t width = 0;  // elements
};

// What a layer keeps of a sequence beside the cache, float32: a matrix whose columns are cut into
// equal units. Ranks divide the units among them (state_layout.h); each has its own in all rows.
struct StateUnits {
  int rows = 1;
  int units = 0;        // 0: it keeps no state
  int unit_floats = 0;  // in a row; whole cache lines, see in_cache_lines()

  bool operator==(const StateUnits&) const = default;
};
inline int in_cache_lines(int floats) { return (floats + 15) / 16 * 16; }

struct PartCost {
  std::vector<ListedTensor> tensors;
  std::vector<PackedMatrices> matrices;
  int64_t vector_elements = 0;  // float32
  int mlp_width = 0;            // of an MLP, kept as one record of an expert; 0: none
  bool mlp_biased = false;      // the record has biases
  kernels::Activation mlp_activation;
  // Of a token:
  uint64_t scratch_floats = 0;
  // One list for each buffer: the rows of a list are in it one after the other.
  std::vector<std::vector<OperandRow>> operands;
  StateUnits units;  // of a mixer
  // Multiply-adds: of a token for each position that it attends to, all heads together; and of a
  // token's step of the state.
  int64_t attended = 0;
  int64_t state = 0;

  // A vector, or a matrix that is kept like one.
  void vector(const std::string& name, int64_t size);
  // A norm of the residual stream.
  void norm(const ModelConfig& config, const std::string& name);
  void vectors(const std::string& name, int64_t n, int64_t k);
  void matrix(const std::string& name, int64_t n, int64_t k, TensorUse use);
  // The MLP of a dense layer or a shared expert (kMlp), or one expert (kExpert).
  void mlp(const std::string& name, const std::array<int, 2>& width_and_hidden, TensorUse use,
           const kernels::Activation& activation);
  // Biases of its products, in its record. After mlp().
  void mlp_biases(const std::string& name, int width, int hidden);
  void add(const PartCost& other);
};

// ---- mixers ----

PartCost grouped_query_cost(const ModelConfig& config, const LayerConfig& layer);
PartCost latent_cost(const ModelConfig& config, const LayerConfig& layer);
PartCost sparse_indexer_cost(const ModelConfig& config, const LayerConfig& layer);
PartCost block_indexer_cost(const ModelConfig& config, const AttentionKind& kind);
PartCost compressed_cost(const ModelConfig& config, const LayerConfig& layer);
PartCost delta_net_cost(const ModelConfig& config);
PartCost kimi_delta_cost(const ModelConfig& config);
PartCost convolution_cost(const ModelConfig& config);
PartCost mamba2_cost(const ModelConfig& config);
// Of the mixer that the layer has.
PartCost mixer_cost(const ModelConfig& config, int layer);

// What attention caches of one layer in a page, kernels::kPageTokens positions (kv_layout.h).
struct CachedHeads {
  int num_kv_heads = 1;
  size_t row_stride = 0;    // elements; latent attention only
  size_t key_bytes = 0;     // of one head in a page
  size_t value_bytes = 0;   // of one head in a page
  size_t index_stride = 0;  // elements of a row of the indexer; 0: none
  // Of its rows in a page; of compressed attention's entries (compressed_page.h).
  size_t index_bytes = 0;

  size_t head_bytes() const { return key_bytes + value_bytes; }
  size_t bytes() const { return static_cast<size_t>(num_kv_heads) * head_bytes() + index_bytes; }
  bool operator==(const CachedHeads&) const = default;
};
// kind: as LayerConfig::attention_kind. parts: the ranks that divide the heads among them.
CachedHeads grouped_query_cache(const AttentionKind& kind, Dtype cache, int parts);
CachedHeads latent_cache(const ModelConfig& config, Dtype cache);
CachedHeads compressed_cache(const ModelConfig& config, const AttentionKind& kind, Dtype cache);
// Of the attention that the model has, in layers of this kind.
CachedHeads attention_cache(const ModelConfig& config, int kind, Dtype cache, int parts);
// Adds the rows of an indexer, of `width` elements.
void add_index_rows(int width, Dtype cache, CachedHeads* heads);
// Of the indexer's keys.
inline Dtype index_dtype(Dtype cache) { return cache == Dtype::kF32 ? cache : Dtype::kBf16; }

// ---- the rest of a layer ----

PartCost norm_cost(const ModelConfig& config, const std::string& name);
// A hyper-connection around the mixer or the feed-forward part. name: of its tensors.
PartCost hyper_cost(const ModelConfig& config, const std::string& name);
// What is beside the dense MLP where MoE layers have one: norms.
PartCost beside_experts_cost(const ModelConfig& config);
// A dense layer's MLP.
PartCost dense_mlp_cost(const ModelConfig& config);
// Router and shared expert. Routed experts are counted apart: which ones a rank has is its own.
PartCost moe_cost(const ModelConfig& config, const LayerConfig& layer);
// name: of the expert.
PartCost expert_cost(const ModelConfig& config, const std::string& name);
// What a prediction layer has around it: its input and output.
PartCost prediction_cost(const ModelConfig& config);

// All parts of a layer without its routed experts, in the order of loading.
std::vector<PartCost> layer_parts(const ModelConfig& config, int layer);

}  // namespace wideep::model
