// SPDX-License-Identifier: Apache-2.0
#include "model/parts/scratch_rows.h"

#include <algorithm>

#include "model/parts/compute.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;
using weights::MatrixForm;

uint64_t floats(uint64_t count) { return count * sizeof(float); }

// The input of a gated MLP in the operand form; 0 if it already has that form.
uint64_t input_row_bytes(const MatrixForm& form, uint64_t hidden, Dtype input) {
  const kernels::PackedShape gate = form.shape(1, static_cast<int>(hidden));
  return needs_cast(gate, input) ? operand_row_bytes(form, hidden) : 0;
}

// The intermediate row between the two products of a gated MLP.
uint64_t between_row_bytes(const MatrixForm& form, uint64_t intermediate) {
  const Dtype between = kernels::row_dtype(form.format);
  const bool casts = kernels::takes_quantized_rows(form.format);
  return intermediate * dtype_bytes(between) + (casts ? operand_row_bytes(form, intermediate) : 0);
}

// The rows of latent experts, the sums of their results and what becomes of these, with operands.
uint64_t latent_row_bytes(const ModelConfig& config, const ModelForms& forms) {
  const auto latent = static_cast<uint64_t>(config.moe_latent_size);
  if (latent == 0) return 0;
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  uint64_t operands = 0;
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    if (!config.is_moe(layer)) continue;
    operands = std::max({operands, operand_row_bytes(forms.of(layer, TensorUse::kLatentIn), hidden),
                         operand_row_bytes(forms.of(layer, TensorUse::kLatentOut), latent)});
  }
  return floats(2 * latent + hidden) + operands;
}

// Rows in the format in which they are sent; and if that is not the experts' own format, the rows
// that the experts take and return.
uint64_t travelling_row_bytes(const ModelConfig& config, const ep::DispatchShape& shape,
                              const MatrixForm& experts) {
  const Dtype plain = kernels::row_dtype(experts.format);
  const auto hidden = static_cast<uint64_t>(config.expert_hidden_size());
  const uint64_t bytes = hidden * dtype_bytes(plain);
  const auto top_k = static_cast<uint64_t>(config.routing.top_k);
  const uint64_t received = std::min(top_k, static_cast<uint64_t>(shape.ep_size));
  const bool reduced = shape.combine == ep::Combine::kReduced;
  uint64_t sum = plain == Dtype::kF32 && shape.row_bytes == bytes ? 0 : shape.row_bytes;
  if (shape.row_bytes != bytes) sum += received * bytes;
  sum += received * input_row_bytes(experts, hidden, plain);
  if (shape.result_bytes != bytes || reduced) sum += top_k * bytes;
  if (reduced) sum += received * floats(hidden);
  return sum;
}

}  // namespace

uint64_t operand_row_bytes(const MatrixForm& form, uint64_t width) {
  if (form.format == WeightFormat::kF32) return 0;
  return operand_bytes(form.shape(1, static_cast<int>(width)));
}

uint64_t mlp_row_bytes(const MatrixForm& form, int hidden, int intermediate, Dtype input) {
  const auto width = static_cast<uint64_t>(hidden);
  return floats(width) + input_row_bytes(form, width, input) +
         between_row_bytes(form, static_cast<uint64_t>(intermediate));
}

bool travels_plain(const ModelConfig& config, const ModelForms& forms,
                   const ep::DispatchShape& shape) {
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  return shape.row_bytes == hidden * dtype_bytes(forms.row_dtype) && !config.weight_on_input &&
         config.moe_latent_size == 0;
}

uint64_t moe_row_bytes(const ModelConfig& config, const ModelForms& forms,
                       const ep::DispatchShape& shape) {
  const uint64_t experts =
      config.routing.top_k * between_row_bytes(forms.expert_down.value_or(forms.experts),
                                               static_cast<uint64_t>(config.moe_intermediate_size));
  const uint64_t weighted = config.weight_on_input ? floats(uint64_t(config.hidden_size)) : 0;
  return floats(uint64_t(config.routing.num_experts)) + weighted + latent_row_bytes(config, forms) +
         travelling_row_bytes(config, shape, forms.experts) + experts;
}

}  // namespace wideep::model
