// SPDX-License-Identifier: Apache-2.0
//
// Latent attention's kv_b [heads · (nope + v), rank] from the two tensors that llama.cpp's
// converter makes of it: keys, transposed for each head, [heads, rank, nope], and values [heads, v,
// rank].
//
// Thread safety: immutable.
#pragma once

#include "tensor_files/gguf.h"
#include "weights/row_source.h"

namespace wideep::model {

class KeyValueB : public weights::RowSource {
 public:
  // REQUIRES: the tensors have the shapes above, and outlive the object.
  KeyValueB(const tensor_files::GgufTensor& keys, const tensor_files::GgufTensor& values)
      : keys_(keys), values_(values) {}

  void to_float32(int begin, int end, float* out) const override;
  std::vector<std::span<const std::byte>> sources() const override {
    return {keys_.bytes, values_.bytes};
  }

 private:
  const tensor_files::GgufTensor& keys_;
  const tensor_files::GgufTensor& values_;
};

}  // namespace wideep::model
