// SPDX-License-Identifier: Apache-2.0
//
// Matrices are grouped by stored type and packed form, so that a file with thousands of tensors
// gives a few lines. The loss is measured, by packing some rows and unpacking them, and not looked
// up in a table: it depends on the weights and on the group.
#include "model/gguf/packing_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/byte_size.h"
#include "kernels/coded_matrix.h"
#include "model/tensor_list.h"
#include "weights/stored_matrix.h"

namespace wideep::model {
namespace {

using weights::MatrixForm;

constexpr int kSampledRows = 64;

// All matrices of one type that are packed in one form.
struct Kind {
  uint64_t stored_bytes = 0;
  uint64_t packed_bytes = 0;
  bool keeps_values = true;
  MatrixForm form;
  ListedTensor first;
};

const MatrixForm* form_of(const ModelForms& forms, int layer, const ListedTensor& tensor) {
  const LayerForms& own = forms.layers[static_cast<size_t>(layer)];
  switch (tensor.use) {
    case TensorUse::kInput:
      return &own.input;
    case TensorUse::kGates:
      return &own.gates;
    case TensorUse::kQueryB:
      return &own.q_b;
    case TensorUse::kIndexQuery:
      return &own.index_query;
    case TensorUse::kIndexKey:
      return &own.index_key;
    case TensorUse::kOutput:
      return &own.output;
    case TensorUse::kPrediction:
      return &own.prediction;
    case TensorUse::kLatentIn:
      return &own.latent_in;
    case TensorUse::kLatentOut:
      return &own.latent_out;
    case TensorUse::kMlp:
      return &own.mlp;
    case TensorUse::kExpert:
      return forms.expert_down && tensor.name.ends_with(".down_proj.weight") ? &*forms.expert_down
                                                                             : &forms.experts;
    case TensorUse::kHead:
      return &forms.lm_head;
    case TensorUse::kEmbedding:
    case TensorUse::kVector:
    case TensorUse::kLatent:
    case TensorUse::kFloat:
      break;
  }
  return nullptr;  // kept as floats
}

std::string describe(const MatrixForm& form) {
  const std::string_view name = kernels::weight_format_name(form.format);
  const bool integers = form.format == kernels::WeightFormat::kInt8 ||
                        form.format == kernels::WeightFormat::kInt4 ||
                        kernels::has_minimums(form.format);
  if (!integers) return std::string(name);
  return fmt::format("{} in groups of {}", name, form.group);
}

// Σ w² / Σ (w − packed w)² of some rows, in dB.
double loss_of(const GgufTensors& tensors, const Kind& kind) {
  const auto n = static_cast<int>(kind.first.shape[0]), k = static_cast<int>(kind.first.shape[1]);
  const auto matrix = weights::StoredMatrix::open(tensors, kind.first.name, n, k);
  if (!matrix.ok()) return NAN;
  const int rows = std::min(n, kSampledRows);
  std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(k));
  std::vector<float> packed(values.size());
  if (!matrix->to_finite(0, rows, values.data()).ok()) return NAN;
  if (kernels::is_coded(kind.form.format)) {
    const auto coded =
        kernels::quantize_matrix(kind.form.format, kind.form.group, values.data(), rows, k);
    kernels::dequantize_rows(coded.view, 0, rows, packed.data());
  } else {
    for (size_t i = 0; i < values.size(); ++i) packed[i] = static_cast<float>(Bf16(values[i]));
  }
  double signal = 0.0, noise = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error = double{values[i]} - double{packed[i]};
    signal += double{values[i]} * double{values[i]};
    noise += error * error;
  }
  return noise > 0.0 ? 10.0 * std::log10(signal / noise) : INFINITY;
}

}  // namespace

std::vector<std::string> packing_notes(const ModelConfig& config, const ModelForms& forms,
                                       const GgufTensors& tensors) {
  std::map<std::string, Kind> kinds;
  const auto add = [&](const ListedTensor& tensor, const MatrixForm* form, uint64_t count) {
    const std::string type = tensors.type_of(tensor.name);
    if (form == nullptr || type.empty()) return;
    Kind& kind = kinds[fmt::format("{} as {}", type, describe(*form))];
    if (kind.first.name.empty()) kind.first = tensor;
    kind.form = *form;
    kind.stored_bytes += count * tensors.bytes_of(tensor.name, tensor.num_elements());
    kind.packed_bytes +=
        count *
        form->shape(static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1])).bytes();
    const bool same = tensors.holds(tensor.name, *form);
    // bf16 of F32 and F16 is what all checkpoints of floats get.
    kind.keeps_values &=
        same || (!kernels::is_coded(form->format) && type.starts_with('F')) || type == "BF16";
  };
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    for (const ListedTensor& tensor : layer_tensors(config, layer)) {
      add(tensor, form_of(forms, layer, tensor), 1);
    }
    if (!config.is_moe(layer)) continue;
    for (const ListedTensor& tensor : expert_tensors(config, layer, 0)) {
      add(tensor, form_of(forms, layer, tensor), static_cast<uint64_t>(config.routing.num_experts));
    }
  }
  for (const ListedTensor& tensor : outer_tensors(config))
    add(tensor, form_of(forms, 0, tensor), 1);
  std::vector<std::pair<uint64_t, std::string>> lossy;
  std::vector<std::string> exact;
  for (const auto& [name, kind] : kinds) {
    if (kind.keeps_values) {
      exact.push_back(name);
      continue;
    }
    lossy.emplace_back(kind.stored_bytes,
                       fmt::format("{}: {} instead of {}, {:.1f} dB signal to noise", name,
                                   base::byte_size(kind.packed_bytes),
                                   base::byte_size(kind.stored_bytes), loss_of(tensors, kind)));
  }
  std::ranges::sort(lossy, std::greater<>());
  std::vector<std::string> notes;
  const std::string& path = tensors.files().first().path();
  for (const auto& [bytes, line] : lossy) notes.push_back(fmt::format("{}: {}", path, line));
  if (!exact.empty()) {
    notes.push_back(fmt::format("{}: packed with equal values: {}", path, fmt::join(exact, ", ")));
  }
  return notes;
}

}  // namespace wideep::model
