// SPDX-License-Identifier: Apache-2.0
//
// Operations come from the shapes of tensors, bytes from the packed form: padding has to be read,
// but is no operation that another engine would have to make. The embedding is taken out of the
// weights and counted by rows, for a step reads only those of its tokens. There is one count of
// attended positions for all layers, and one of cached ones: each layer bounds them by its reach.
#include "model/model_work.h"

#include <algorithm>
#include <set>
#include <vector>

#include "model/kv_layout.h"
#include "model/model_cost.h"
#include "model/parts/part_cost.h"

namespace wideep::model {
namespace {

// Weights of the parts' matrices of these uses.
template <typename... Uses>
int64_t elements_of(const std::vector<PartCost>& parts, Uses... uses) {
  int64_t elements = 0;
  for (const PartCost& part : parts) {
    for (const ListedTensor& tensor : part.tensors) {
      if (((tensor.use == uses) || ...)) elements += tensor.num_elements();
    }
  }
  return elements;
}

// Products of the parts with matrices: those that multiply the same rows are one.
int num_products(const std::vector<PartCost>& parts) {
  std::set<TensorUse> uses;
  for (const PartCost& part : parts) {
    for (const ListedTensor& tensor : part.tensors) {
      if (tensor.shape.size() == 2) uses.insert(tensor.use);
    }
  }
  uses.erase(TensorUse::kMlp);
  return static_cast<int>(uses.size());
}

// Weights that one token is multiplied with in the feed-forward part of a layer.
int64_t feed_forward_elements(const ModelConfig& config, const LayerElements& layer) {
  return layer.router + layer.mlp + config.routing.top_k * layer.expert;
}

double operations_of(const ModelConfig& config, const StepShape& shape) {
  double multiply_adds = 0.0;
  const auto add = [&](int64_t rows, int64_t elements) {
    multiply_adds += static_cast<double>(rows) * static_cast<double>(elements);
  };
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool is_last = layer + 1 == config.num_layers;
    const LayerElements elements = elements_of_layer(config, layer);
    add(shape.num_tokens, elements.mixer + elements.state);
    const int reach = config.layers[static_cast<size_t>(layer)].reach();
    add(shape.attended_within(reach), elements.attended);
    add(is_last ? shape.num_logit_rows : shape.num_tokens, feed_forward_elements(config, elements));
  }
  add(shape.num_logit_rows, int64_t{config.vocab_size} * config.hidden_size);
  return 2.0 * multiply_adds;
}

// Bytes of the positions that are read from the cache, of all layers that have one.
double cached_bytes(const ModelConfig& config, const KvLayout& kv, const StepShape& shape) {
  double bytes = 0.0;
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    if (!config.is_cached(layer)) continue;
    const int reach = config.layers[static_cast<size_t>(layer)].reach();
    bytes += static_cast<double>(shape.cached_within(reach)) *
             static_cast<double>(kv.layer_bytes(layer)) / kernels::kPageTokens;
  }
  return bytes;
}

}  // namespace

LayerElements elements_of_layer(const ModelConfig& config, int layer) {
  const std::vector<PartCost> parts = layer_parts(config, layer);
  const PartCost mixer = mixer_cost(config, layer);
  LayerElements elements{
      .mixer = elements_of(parts, TensorUse::kInput, TensorUse::kGates, TensorUse::kQueryB,
                           TensorUse::kLatent, TensorUse::kIndexQuery, TensorUse::kIndexKey,
                           TensorUse::kOutput),
      .state = mixer.state,
      .attended = mixer.attended,
      .router = elements_of(parts, TensorUse::kFloat, TensorUse::kLatentIn, TensorUse::kLatentOut),
      .mlp = elements_of(parts, TensorUse::kMlp),
      .products = num_products(parts),
  };
  if (config.is_moe(layer)) {
    elements.expert = elements_of({expert_cost(config, "")}, TensorUse::kExpert);
  }
  return elements;
}

int64_t StepShape::attended_within(int reach) const {
  return reach == 0 ? attended : std::min(attended, num_tokens * reach);
}

// A window's own last position is not in the cache yet.
int64_t StepShape::cached_within(int reach) const {
  return reach == 0 ? cached : std::min(cached, num_cached * (reach - 1));
}

StepShape& StepShape::operator+=(const StepShape& other) {
  num_tokens += other.num_tokens;
  num_logit_rows += other.num_logit_rows;
  attended += other.attended;
  cached += other.cached;
  num_cached += other.num_cached;
  experts_hit += other.experts_hit;
  return *this;
}

StepShape prompt_step(int64_t count, int64_t length, int64_t experts_hit) {
  return {.num_tokens = count * length,
          .num_logit_rows = count,
          .attended = count * length * (length + 1) / 2,
          .experts_hit = experts_hit};
}

StepShape decode_step(int64_t count, int64_t cached, int64_t experts_hit) {
  return {.num_tokens = count,
          .num_logit_rows = count,
          .attended = count * (cached + 1),
          .cached = count * cached,
          .num_cached = cached > 0 ? count : 0,
          .experts_hit = experts_hit};
}

Work work_of(const ModelConfig& config, const Precision& precision, const StepShape& shape,
             int64_t num_steps) {
  const kernels::WeightFormat format = precision.weights;
  const ModelForms forms = precision.forms ? *precision.forms : uniform_forms(config, format);
  const double row =
      static_cast<double>(config.hidden_size) * dtype_bytes(kernels::row_dtype(format));
  const auto all =
      static_cast<double>(dense_weight_bytes(config, forms, {0, config.num_all_layers()}));
  const double dense = all - row * config.vocab_size;
  const double expert = config.num_moe_layers() == 0
                            ? 0.0
                            : static_cast<double>(experts_shape(config, forms).record_bytes());
  const KvLayout kv(config, precision.cache);
  return {.operations = operations_of(config, shape),
          .bytes =
              static_cast<double>(num_steps) * dense + row * static_cast<double>(shape.num_tokens) +
              expert * static_cast<double>(shape.experts_hit) + cached_bytes(config, kv, shape)};
}

ParameterCount count_parameters(const ModelConfig& config) {
  const int64_t embedding = int64_t{config.vocab_size} * config.hidden_size;
  ParameterCount count{
      .all = config.tie_word_embeddings ? embedding : 2 * embedding,
      .active = embedding};  // the LM head; the one row of the embedding is negligible
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const LayerElements elements = elements_of_layer(config, layer);
    const int64_t used = elements.mixer + feed_forward_elements(config, elements);
    const int64_t idle_experts = config.routing.num_experts - config.routing.top_k;
    count.active += used;
    count.all += used + idle_experts * elements.expert;
  }
  return count;
}

}  // namespace wideep::model
