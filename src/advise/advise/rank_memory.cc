// SPDX-License-Identifier: Apache-2.0
#include "advise/rank_memory.h"

#include <algorithm>

#include "cost/expert_cost.h"
#include "model/kv_layout.h"
#include "model/model_work.h"

namespace wideep::advise {

RankMemory memory_of(const model::ModelConfig& config, const cost::Layout& layout) {
  const double weight = cost::bytes_per_weight(layout.format);
  const double parts = layout.attention_parts();
  const double slots = static_cast<double>(layout.num_slots) / layout.ep;
  const int num_experts = config.routing.num_experts;
  const double min = (num_experts + layout.ep - 1) / layout.ep;  // slots of a rank
  RankMemory memory;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const model::LayerElements elements = model::elements_of_layer(config, layer);
    const double expert = static_cast<double>(elements.expert) * weight / layout.expert_slices;
    memory.dense +=
        static_cast<double>(elements.mixer + elements.mlp + elements.router) * weight / parts;
    memory.experts += std::min(slots, min) * expert;
    memory.replicas += std::max(0.0, slots - min) * expert;
  }
  for (double* part : {&memory.dense, &memory.experts, &memory.replicas}) *part /= layout.stages;
  const double embedding = 2.0 * config.vocab_size * config.hidden_size;  // bf16
  memory.vocabulary = (config.tie_word_embeddings ? 1.0 : 2.0) * embedding / parts;
  const model::KvLayout kv(config, layout.cache, layout.attention_parts());
  memory.weights = memory.dense + memory.experts + memory.replicas + memory.vocabulary;
  memory.token =
      static_cast<double>(kv.page_bytes()) / kernels::kPageTokens / layout.stages / layout.context;
  return memory;
}

}  // namespace wideep::advise
