// SPDX-License-Identifier: Apache-2.0
#include "model/attention.h"

#include <cstring>

namespace wideep::model {

void CachedAttention::forward(const Compute& compute, const Batch& batch, const KvLayout& kv,
                              const float* q, float* out) const {
  compute.pool().parallel_for(batch.num_tokens(), 1, [&](int64_t token, int64_t) {
    thread_local std::vector<const std::byte*> keys, values;
    keys.clear();
    values.clear();
    for (std::byte* page : *batch.pages[token]) {
      keys.push_back(kv.keys(page, layer));
      values.push_back(value_in_key ? keys.back() : kv.values(page, layer));
    }
    compute.kernels().attention({
        .num_heads = num_heads,
        .num_kv_heads = num_kv_heads,
        .key_dim = key_dim,
        .value_dim = value_dim,
        .scale = scale,
        .num_positions = batch.positions[token] + 1,
        .q = q + token * num_heads * key_dim,
        .cache_dtype = kv.dtype,
        .key_pages = keys.data(),
        .value_pages = values.data(),
        .key_stride = kv.key_row,
        .value_stride = value_in_key ? kv.key_row : kv.value_row,
        .out = out + token * num_heads * value_dim,
    });
  });
}

void store_row(const Compute& compute, Dtype dtype, const float* x, int count, std::byte* out) {
  if (dtype == Dtype::kBf16) {
    compute.kernels().to_bf16(x, count, reinterpret_cast<Bf16*>(out));
  } else {
    std::memcpy(out, x, count * sizeof(float));
  }
}

}  // namespace wideep::model
