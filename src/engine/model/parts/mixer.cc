// SPDX-License-Identifier: Apache-2.0
#include "model/parts/mixer.h"

#include "base/try.h"

namespace wideep::model {

using kernels::kPageTokens;

// If the ranks are on several nodes, the pages with new tokens are sent to the other nodes: whole
// pages, but only this layer's part of them.
Status Mixer::meet_in_cache(const MixerCall& call, int layer) {
  std::vector<transport::Written> written;
  if (call.context.is_spread() && call.batch.num_tokens() > 0) {
    for (const TokenRun& run : call.scratch.step.runs) {
      const int last = run.first_position + run.num_tokens - 1;
      for (int page = run.first_position / kPageTokens; page <= last / kPageTokens; ++page) {
        written.push_back({.first = call.kv.keys((*run.pages)[page], layer, 0),
                           .width = call.kv.layer_bytes(layer)});
      }
    }
  }
  return call.context.meet_with_own(written, call.where.named("keys and values"));
}

Result<const float*> Mixer::project(const MixerCall& call, const kernels::PackedMatrix& o,
                                    const float* bias) {
  const int own = o.k() / call.group.size();
  return project(call, o, {.begin = own * call.group.rank(), .size = own}, bias);
}

Result<const float*> Mixer::project(const MixerCall& call, const kernels::PackedMatrix& o,
                                    ColumnRange own, const float* bias) {
  WIDEEP_TRY_ASSIGN(const float* heads, meet_heads(call, o, own));
  return multiply(call, o, heads, bias);
}

Result<const float*> Mixer::meet_heads(const MixerCall& call, const kernels::PackedMatrix& o,
                                       ColumnRange own) {
  const int num_tokens = call.batch.num_tokens();
  const float* heads =
      call.group.joint<float>(JointBuffer::kHeads, static_cast<size_t>(num_tokens) * o.k());
  const auto* first = reinterpret_cast<const std::byte*>(heads + own.begin);
  WIDEEP_TRY(call.group.meet({.first = first,
                              .width = static_cast<size_t>(own.size) * sizeof(float),
                              .stride = static_cast<size_t>(o.k()) * sizeof(float),
                              .rows = static_cast<size_t>(num_tokens)},
                             call.where.named("the mixer's heads")));
  return heads;
}

Result<const float*> Mixer::multiply(const MixerCall& call, const kernels::PackedMatrix& o,
                                     const float* heads, const float* bias) {
  const int num_tokens = call.batch.num_tokens();
  float* out =
      call.group.joint<float>(JointBuffer::kOutput, static_cast<size_t>(num_tokens) * o.n());
  const Rows rows =
      call.compute.cast(o.shape, float_rows(heads, o.k(), num_tokens, o.k()), call.scratch.cast);
  const Product product{&o, out, static_cast<size_t>(o.n()), call.group.panels(o.shape), bias};
  call.compute.matmul(rows, std::span(&product, 1));
  WIDEEP_TRY(call.group.meet(written_columns(out, o.n(), sizeof(float), num_tokens, product.panels),
                             call.where.named("the mixer's output")));
  return out;
}

}  // namespace wideep::model
