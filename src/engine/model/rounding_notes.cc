// SPDX-License-Identifier: Apache-2.0
//
// Pairs of a stored dtype and the format that it is rounded to, with the parts of the model in the
// order in which they are met. Parts are named for people: several uses of tensors are "attention".
// Only what the files say of tensors is looked at, not their values, so this costs nothing before
// loading.
#include "model/rounding_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "model/tensor_list.h"
#include "weights/stored_matrix.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;
using weights::StoredLayout;

WeightFormat format_of_rows(const ModelForms& forms) {
  return forms.row_dtype == Dtype::kF32 ? WeightFormat::kF32 : WeightFormat::kBf16;
}

// The format in which a matrix of the layer is kept, and what people call it.
std::pair<WeightFormat, const char*> kept_as(const ModelForms& forms, const LayerForms& layer,
                                             const ListedTensor& tensor) {
  switch (tensor.use) {
    case TensorUse::kExpert: {
      const bool is_down = tensor.name.ends_with(".down_proj.weight");
      const auto& form = is_down ? forms.expert_down.value_or(forms.experts) : forms.experts;
      return {form.format, "experts"};
    }
    case TensorUse::kEmbedding:
      return {format_of_rows(forms), "the embedding"};
    case TensorUse::kHead:
      return {forms.lm_head.format, "the head"};
    case TensorUse::kMlp:
      return {layer.mlp.format, "dense MLPs"};
    case TensorUse::kLatent:
      return {format_of_rows(forms), "keys and values of latents"};
    case TensorUse::kInput:
      return {layer.input.format, "attention"};
    case TensorUse::kGates:
      return {layer.gates.format, "attention"};
    case TensorUse::kQueryB:
      return {layer.q_b.format, "attention"};
    case TensorUse::kOutput:
      return {layer.output.format, "attention"};
    case TensorUse::kIndexQuery:
      return {layer.index_query.format, "the indexer"};
    case TensorUse::kIndexKey:
      return {layer.index_key.format, "the indexer"};
    case TensorUse::kPrediction:
    case TensorUse::kLatentIn:
    case TensorUse::kLatentOut:
      return {layer.prediction.format, "the prediction layer"};
    case TensorUse::kFloat:
    case TensorUse::kVector:
      break;
  }
  return {WeightFormat::kF32, ""};
}

// The stored dtypes that are rounded, with their parts in the order of the model.
class Rounded {
 public:
  Rounded(const ModelForms& forms, const weights::TensorSource& tensors)
      : forms_(forms), tensors_(tensors) {}

  void add(const std::vector<ListedTensor>& list, const LayerForms& layer) {
    for (const ListedTensor& tensor : list) {
      if (tensor.shape.size() == 2) add(tensor, layer);
    }
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& [from_to, parts] : parts_) {
      lines.push_back(fmt::format(
          "--dtype auto: {} {} stored as {} and rounded to {}{}", fmt::join(parts, ", "),
          parts.size() == 1 && parts[0].starts_with("the ") ? "is" : "are", from_to.first,
          from_to.second,
          from_to.first == "F32" || from_to.first == "F16" ? " (--dtype float32 keeps their values)"
                                                           : ""));
    }
    return lines;
  }

 private:
  void add(const ListedTensor& tensor, const LayerForms& layer) {
    const auto [kept, part] = kept_as(forms_, layer, tensor);
    const auto k = tensor.shape.back();
    const StoredLayout stored =
        weights::stored_layout(tensors_.module(weights::module_of(tensor.name)), k);
    if (stored.kind == StoredLayout::Kind::kMissing || kept == WeightFormat::kF32) return;
    const tensor_files::TensorEntry* entry =
        tensors_.module(weights::module_of(tensor.name)).source->find(stored.weight);
    const bool is_float = stored.kind == StoredLayout::Kind::kFloats;
    const bool same = is_float ? entry->dtype == Dtype::kBf16 && kept == WeightFormat::kBf16
                               : stored.form(k).format == kept && kept != WeightFormat::kBf16;
    if (same) return;
    std::vector<std::string>& parts = parts_[{std::string(dtype_name(entry->dtype)),
                                              std::string(kernels::weight_format_name(kept))}];
    if (std::ranges::find(parts, part) == parts.end()) parts.emplace_back(part);
  }

  const ModelForms& forms_;
  const weights::TensorSource& tensors_;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> parts_;
};

}  // namespace

std::vector<std::string> rounding_notes(const ModelConfig& config, const ModelForms& forms,
                                        const weights::TensorSource& tensors) {
  Rounded rounded(forms, tensors);
  rounded.add(outer_tensors(config), {});
  for (int layer = 0; layer < config.num_all_layers(); ++layer) {
    const LayerForms& of_layer = forms.layers[static_cast<size_t>(layer)];
    rounded.add(layer_tensors(config, layer), of_layer);
    if (config.is_moe(layer)) rounded.add(expert_tensors(config, layer, 0), of_layer);
  }
  return rounded.lines();
}

}  // namespace wideep::model
