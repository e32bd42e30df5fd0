// SPDX-License-Identifier: Apache-2.0
//
// The first half of a layer: x += mixer(rms_norm(x)), which mixes the tokens of a sequence. Kinds
// of attention (grouped_query_attention.h, latent_attention.h), gated delta nets
// (gated_delta_net.h), Kimi Delta Attention (kimi_delta_attention.h), Mamba-2 (mamba2.h) and short
// convolutions (short_convolution.h), which keep states (state_mixer.h).
//
// Thread safety: weights are constant; everything else is used by one thread per rank.
#pragma once

#include <memory>
#include <vector>

#include "model/parts/attention.h"
#include "model/state_layout.h"

namespace wideep::model {

// Memory for intermediate results, shared by all layers of a rank.
struct MixerScratch {
  AttentionStep step;
  Scratch cast, low_cast;
  Scratch query_low, query, key, value, gate, kv_row;
  Scratch latent_query, latent_out;
  Scratch index_query, index_key, index_weights, index_scores;
  std::vector<int32_t> index_positions;  // of `selected`, or the blocks of `blocks`
  SelectedPositions selected;            // by the last layer with an indexer of its own
  SelectedBlocks blocks;                 // by the layer's indexer
};

// The arguments of one layer's mixer.
struct MixerCall {
  const Compute& compute;
  TensorGroup& group;
  TensorGroup& context;  // ranks that hold other tokens of the same sequences
  const Batch& batch;
  const KvLayout& kv;
  const StateLayout& states;
  transport::Awaited where;
  MixerScratch& scratch;
};

// The weights of one layer's mixer; constant after loading, so that ranks can share them.
class Mixer {
 public:
  virtual ~Mixer() = default;

  // Adds to call.scratch.step, which was started, what all layers of attention share. Called on one
  // of them before the first layer's forward.
  virtual void prepare(const MixerCall&) const {}

  // h: [num_tokens, hidden], the normalised input. Writes the keys and values of the batch, for
  // this rank's heads, into the cache, or advances the states. Returns the output over all heads,
  // [num_tokens, hidden], in JointBuffer::kOutput. Collective over call.group and call.context.
  virtual Result<const float*> forward(const MixerCall& call, const float* h) const = 0;

 protected:
  // A barrier of call.context after the batch's keys and values are written. Afterwards the pages
  // of all its ranks can be read in place: they lie in shared memory.
  static Status meet_in_cache(const MixerCall& call, int layer);
  // The two halves of project(): waits until all columns of kHeads are written, and multiplies rows
  // [num_tokens, o.k()] that are equal on all ranks of the group.
  static Result<const float*> meet_heads(const MixerCall& call, const kernels::PackedMatrix& o,
                                         ColumnRange own);
  static Result<const float*> multiply(const MixerCall& call, const kernels::PackedMatrix& o,
                                       const float* heads, const float* bias);
  // The output projection: heads · oᵀ + bias (null: none), where heads, [num_tokens, o.k()], is
  // what all ranks of the group have written to kHeads: this rank its `own` columns. Collective
  // over call.group.
  static Result<const float*> project(const MixerCall& call, const kernels::PackedMatrix& o,
                                      ColumnRange own, const float* bias);
  // The same with equally many columns of each rank.
  static Result<const float*> project(const MixerCall& call, const kernels::PackedMatrix& o,
                                      const float* bias = nullptr);
};

}  // namespace wideep::model
