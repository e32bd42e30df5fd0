// SPDX-License-Identifier: Apache-2.0
//
// Mixers that keep a state of each sequence and advance it token after token (state_layout.h):
// gated delta nets (gated_delta_net.h), Kimi Delta Attention (kimi_delta_attention.h), Mamba-2
// (mamba2.h), short convolutions (short_convolution.h).
//
// They divide as attention does, by units instead of heads: a rank computes the columns of its own
// units, keeps only these units' states, and writes their columns of what the output projection
// reads. No sum is cut, so bits do not depend on how many ranks there are.
//
// Ranks that share sequences (context parallelism) divide the units too, of all tokens of the step.
//
// Thread safety: as Mixer.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "model/parts/mixer.h"

namespace wideep::model {

// What a mixer reads and writes in a step.
struct StateRows {
  int num_tokens = 0;
  const float* h = nullptr;  // [num_tokens, hidden] the normalised input
  float* out = nullptr;      // [num_tokens, output width]; only columns of own units are written
  UnitRange own;             // the units of this rank; some
  std::span<const TokenRun> sequences;  // the tokens of each, in order
  std::span<std::byte* const> states;   // [num_tokens] of the token's sequence
  std::span<std::byte* const> saved;    // [num_tokens] as Batch::saved_states; or empty
};

class StateMixer : public Mixer {
 public:
  Result<const float*> forward(const MixerCall& call, const float* h) const final;

 protected:
  // What the output projection reads of each unit, and the projection.
  struct Output {
    int units = 0;
    int unit_columns = 0;  // the last unit may have fewer
    int hidden_size = 0;
    const kernels::PackedMatrix& matrix;
    const float* bias = nullptr;  // null: none
  };
  virtual Output output() const = 0;
  // Computes rows.out of own units and advances their states.
  virtual void advance(const MixerCall& call, const StateRows& rows) const = 0;
  // What the output projection takes instead of `heads`, [num_tokens, output width] of the batch
  // with the columns of all units: them, or rows in memory of this rank.
  virtual const float* finish(const MixerCall&, const float* heads) const { return heads; }

  static float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
  // Above 20 it equals x in float32.
  static float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
  // Writes a convolution's weights, [channels.size, width] as files have them, to these columns of
  // `to`, [width, all]: the kernel takes those of all channels for one input after the other.
  static void put_convolution(const std::vector<float>& stored, ColumnRange channels, int all,
                              std::vector<float>* to);

  // Calls run(first, count, saved) for the parts of a sequence's tokens, of which the first has
  // number 0: after each part the state is copied to `saved`; null: after the last part.
  template <typename Run>
  static void for_each_saved(const StateRows& rows, const TokenRun& tokens, Run run) {
    int first = 0;
    for (int i = 0; i + 1 < tokens.num_tokens && !rows.saved.empty(); ++i) {
      std::byte* saved = rows.saved[static_cast<size_t>(tokens.first_token + i)];
      if (saved == nullptr) continue;
      run(first, i + 1 - first, saved);
      first = i + 1;
    }
    run(first, tokens.num_tokens - first, static_cast<std::byte*>(nullptr));
  }

 private:
  // Makes rows->h that of all tokens of the step. Collective over call.context.
  static Status gather_rows(const MixerCall& call, int hidden_size, StateRows* rows);
  // own: the columns that this rank has written. Collective over call.group.
  Result<const float*> put_out(const MixerCall& call, const Output& to, ColumnRange own) const;
};

}  // namespace wideep::model
