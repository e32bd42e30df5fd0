// SPDX-License-Identifier: Apache-2.0
//
// The names of tensors in GGUF files: what the tensors of this house (tensor_list.h) are called
// there. A file has the first of the names that it contains.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::model {

// The parts of a canonical name: "model.layers.3.mlp.experts.7.gate_proj.weight" is module
// "mlp.experts.gate_proj" of layer 3, expert 7, with the ending ".weight".
struct TensorName {
  std::string module;
  std::string ending;  // ".weight", ".bias" or ""
  int layer = -1;      // −1: outside the layers
  int expert = -1;

  static TensorName parse(std::string_view canonical);
};

// Where a GGUF file may have a tensor.
struct GgufName {
  std::string name;
  // All experts lie in it one after the other.
  bool of_all_experts = false;
};
// In the order in which they are tried; empty: no file has it as a tensor of its own.
std::vector<GgufName> gguf_names(const TensorName& name);

// "blk.3.<module><ending>"
std::string gguf_name(int layer, std::string_view module, std::string_view ending = ".weight");
// The layer of "blk.3.…"; none: not in a layer.
std::optional<int> gguf_layer(std::string_view name);

}  // namespace wideep::model
