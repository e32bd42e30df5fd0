// SPDX-License-Identifier: Apache-2.0
//
// Which entries a token attends to in compressed attention: all that it may, or the top_k of them
// that an indexer scores best (DeepSeek-V4), as SparseIndexer scores positions:
//
//   q_I      = q_b(latent query), per head, its last dimensions rotated
//   w        = weights(h) · heads^-½ · head_dim^-½
//   score(t, e) = Σ_heads w · relu(q_I(t) · k_I(e))
//
// where the key of an entry, k_I, is made like the entry, of smaller dimension (compressor.h).
//
// Thread safety: constant after loading; the scratch belongs to the calling rank.
#pragma once

#include <string>
#include <vector>

#include "model/model_forms.h"
#include "model/parts/compressed_page.h"
#include "model/parts/mixer.h"
#include "model/parts/rope.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class EntryIndexer {
 public:
  // prefix: ends with a dot. Errors: as WeightLoader.
  static Result<EntryIndexer> load(const ModelConfig& config, int layer,
                                   const weights::WeightLoader& loader, const LayerForms& forms,
                                   const std::string& prefix);

  // Computes the batch's queries and weights. h: [num_tokens, hidden]; low: [num_tokens, query rank].
  // kind: of the layer, whose angles are in the step.
  void make_queries(const MixerCall& call, const float* h, const float* low,
                    const Rope& rope) const;
  // After all keys of entries are in the cache: chooses for the tokens that may attend to more than
  // top_k entries, into call.scratch.selected, where select_all_entries() has left room for them.
  void choose(const MixerCall& call, const CompressedPage& page) const;

 private:
  EntryIndexer(const ModelConfig& config, int layer) : config_(&config), layer_(layer) {}

  const ModelConfig* config_;
  int layer_;
  weights::Matrix query_;    // [heads · head_dim, query rank]
  weights::Matrix weights_;  // [heads, hidden], float32
};

// Sets call.scratch.selected to all entries that tokens may attend to. room: 0, or what tokens that
// may attend to more are to choose: they have as much room for it, and no list yet.
void select_all_entries(const MixerCall& call, const CompressedPage& page, int room);

}  // namespace wideep::model
