// SPDX-License-Identifier: Apache-2.0
#include "model/gguf/key_value_b.h"

#include "weights/blocks.h"

namespace wideep::model {

void KeyValueB::to_float32(int begin, int end, float* out) const {
  const auto rank = static_cast<int>(keys_.shape[1]), nope = static_cast<int>(keys_.shape[2]);
  const auto v = static_cast<int>(values_.shape[1]);
  const size_t keys_of_head = static_cast<size_t>(rank) * keys_.row_bytes();
  std::vector<float> keys(static_cast<size_t>(rank) * static_cast<size_t>(nope));
  int decoded_head = -1;
  for (int row = begin; row < end; ++row, out += rank) {
    const int head = row / (nope + v), of_head = row % (nope + v);
    if (of_head >= nope) {
      const auto at = static_cast<size_t>(head * v + of_head - nope);
      weights::dequantize_blocks(values_.type, values_.bytes.data() + at * values_.row_bytes(),
                                 rank, out);
      continue;
    }
    if (head != decoded_head) {
      weights::dequantize_blocks(keys_.type,
                                 keys_.bytes.data() + static_cast<size_t>(head) * keys_of_head,
                                 int64_t{rank} * nope, keys.data());
      decoded_head = head;
    }
    for (int i = 0; i < rank; ++i) {
      out[i] =
          keys[static_cast<size_t>(i) * static_cast<size_t>(nope) + static_cast<size_t>(of_head)];
    }
  }
}

}  // namespace wideep::model
