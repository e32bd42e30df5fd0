// SPDX-License-Identifier: Apache-2.0
//
// Weights count in their packed shape, which has more bytes than their elements where panels are
// filled up. A token's rows count buffer by buffer, not layer by layer: the largest mixer, the
// largest dense MLP and the largest shared expert are added, though no layer has all three, because
// a model that has them keeps a buffer for each.
#include "model/model_cost.h"

#include <algorithm>

#include "model/parts/part_cost.h"
#include "model/parts/scratch_rows.h"

namespace wideep::model {
namespace {

using parallel::LayerRange;
using weights::MatrixForm;

uint64_t floats(uint64_t count) { return count * sizeof(float); }

uint64_t packed_bytes(const MatrixForm& form, int n, int k) { return form.shape(n, k).bytes(); }

uint64_t weight_bytes(const ModelConfig& config, const ModelForms& forms, int layer,
                      const PartCost& part) {
  uint64_t bytes = floats(static_cast<uint64_t>(part.vector_elements));
  for (const PackedMatrices& matrices : part.matrices) {
    bytes += static_cast<uint64_t>(matrices.count) *
             packed_bytes(forms.of(layer, matrices.use), matrices.n, matrices.k);
  }
  if (part.mlp_width == 0) return bytes;
  const MatrixForm mlp = forms.of(layer, TensorUse::kMlp);
  return bytes + weights::ExpertShape{.format = mlp.format,
                                      .hidden = config.hidden_size,
                                      .intermediate = part.mlp_width,
                                      .group = mlp.group,
                                      .biased = part.mlp_biased,
                                      .activation = part.mlp_activation}
                     .record_bytes();
}

// The largest of the rows that share a buffer.
uint64_t operand_bytes(const ModelForms& forms, int layer, const std::vector<OperandRow>& rows) {
  uint64_t bytes = 0;
  for (const OperandRow& row : rows) {
    bytes = std::max(bytes, operand_row_bytes(forms.of(layer, row.use), row.width));
  }
  return bytes;
}

uint64_t mixer_row_bytes(const ModelConfig& config, const ModelForms& forms, int layer) {
  const PartCost mixer = mixer_cost(config, layer);
  uint64_t bytes = floats(mixer.scratch_floats);
  for (const std::vector<OperandRow>& rows : mixer.operands) {
    bytes += operand_bytes(forms, layer, rows);
  }
  return bytes;
}

// Of the model outside its layers: the residual stream and its norm, the LM head's input; and of
// layers that predict, whose operands take the LM head's buffer.
uint64_t outer_row_bytes(const ModelConfig& config, const ModelForms& forms, LayerRange layers) {
  const uint64_t hidden = config.hidden_size;
  const HyperConfig& hyper = config.hyper;
  uint64_t bytes = floats(uint64_t(config.stream_width()) + hidden),
           operand = operand_row_bytes(forms.lm_head, hidden);
  if (hyper.is_on()) {  // see HyperConnection: the collapsed row, and weights of streams
    bytes += floats(hidden + 3 * uint64_t(2 + hyper.num_streams) * uint64_t(hyper.num_streams));
  }
  if (config.has_experts()) {  // see Model::routed_
    bytes += floats((config.norms_after || hyper.is_on() ? 1 : 0) * hidden +
                    (config.dense_beside_experts ? 1 : 0) * hidden +
                    (config.routing.own_norm ? 1 : 0) * hidden);
  }
  if (config.num_prediction_layers > 0 && layers.last == config.num_all_layers()) {
    const PartCost prediction = prediction_cost(config);
    bytes += floats(prediction.scratch_floats);
    operand = std::max(
        operand, operand_bytes(forms, config.num_all_layers() - 1, prediction.operands.front()));
  }
  return bytes + operand;
}

}  // namespace

uint64_t dense_weight_bytes(const ModelConfig& config, const ModelForms& forms, LayerRange layers) {
  const uint64_t hidden = config.hidden_size;
  uint64_t bytes = 0;
  const bool is_last = layers.last == config.num_all_layers();
  // Prediction layers embed too.
  if (layers.first == 0 || (is_last && config.num_prediction_layers > 0)) {
    bytes += hidden * config.vocab_size * dtype_bytes(forms.row_dtype);
  }
  for (int layer = layers.first; layer < layers.last; ++layer) {
    for (const PartCost& part : layer_parts(config, layer)) {
      bytes += weight_bytes(config, forms, layer, part);
    }
  }
  if (is_last) {
    bytes += packed_bytes(forms.lm_head, config.vocab_size, config.hidden_size) +
             floats((config.norm_bias ? 2 : 1) * hidden +
                    (config.head_bias ? uint64_t(config.vocab_size) : 0));
    if (config.hyper.learned_end) {
      bytes += weight_bytes(config, forms, 0, hyper_cost(config, "model.hc_head"));
    }
  }
  return bytes;
}

uint64_t working_row_bytes(const ModelConfig& config, const ModelForms& forms,
                           const ep::DispatchShape& shape, LayerRange layers, int sharing) {
  const Dtype shared_input = travels_plain(config, forms, shape) ? forms.row_dtype : Dtype::kF32;
  uint64_t mixer = 0, dense = 0, shared = 0;
  for (int layer = layers.first; layer < layers.last; ++layer) {
    const auto rows = static_cast<uint64_t>(config.is_cached(layer) ? 1 : sharing);
    mixer = std::max(mixer, rows * mixer_row_bytes(config, forms, layer));
    const MatrixForm form = forms.of(layer, TensorUse::kMlp);
    if (config.is_dense(layer) || (config.is_moe(layer) && config.dense_beside_experts)) {
      dense = std::max(dense, mlp_row_bytes(form, config.hidden_size,
                                            config.dense_intermediate_size, Dtype::kF32));
    }
    if (config.is_moe(layer) && config.shared_intermediate_size > 0) {
      shared = std::max(shared, mlp_row_bytes(form, config.hidden_size,
                                              config.shared_intermediate_size, shared_input));
    }
  }
  return mixer + dense + shared + outer_row_bytes(config, forms, layers) +
         (config.has_experts() ? moe_row_bytes(config, forms, shape) : 0);
}

}  // namespace wideep::model
