// SPDX-License-Identifier: Apache-2.0
//
// Compressed attention (DeepSeek-V4): all heads share one key, which is the value, too. A token
// attends to a window of positions, and in layers with groups to entries, each made of a group of
// positions (compressor.h): to all of complete groups, or to those that an indexer chooses
// (entry_indexer.h).
//
//   low    = rms_norm(q_a(h))
//   q      = rotate(rms_norm(q_b(low)))         per head, without weight
//   key    = rotate(rms_norm(kv(h)))            cached; the value, too
//   out    = unrotate(softmax(q · [keys ‖ entries], with a sink) · [keys ‖ entries])   per head
//   result = o_b(o_a_g(out of the heads of group g), for all g)
//
// Rotations are of a head's last dimensions. A value was rotated by its own position; turning the
// output back by the token's leaves the distance.
//
// docs/decisions/0007-attention.md says where entries are kept. In a tensor group ranks divide the
// heads by whole output groups; all have all keys and entries.
//
// Thread safety: as Mixer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model_forms.h"
#include "model/parts/compressed_page.h"
#include "model/parts/compressor.h"
#include "model/parts/entry_indexer.h"
#include "model/parts/mixer.h"
#include "model/parts/rope.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class CompressedAttention : public Mixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

  void prepare(const MixerCall& call) const override;
  Result<const float*> forward(const MixerCall& call, const float* h) const override;

 private:
  CompressedAttention(const ModelConfig& config, int layer);
  Status load_compressors(const weights::WeightLoader& loader, const LayerForms& forms,
                          const std::string& prefix);
  HeadRange heads_of(const TensorGroup& group) const { return group.heads(kind_.num_heads, 1); }

  float* queries(const MixerCall& call, const Rows& h) const;
  void write_cache(const MixerCall& call, const float* h, const Rows& rows, float* q) const;
  void make_entries(const MixerCall& call, const CompressedPage& page) const;
  void attend(const MixerCall& call, const CompressedPage& page, const AttentionTask& task,
              const AttentionRows& rows) const;
  void unrotate(const MixerCall& call, float* out) const;
  ColumnRange project_groups(const MixerCall& call, const float* out) const;

  const ModelConfig& config_;
  int layer_;
  int kind_index_;
  AttentionKind kind_;
  Rope rope_;
  CachedAttention window_;
  weights::Matrix q_a_;  // [query rank, hidden]
  weights::Matrix q_b_;  // [heads · dim, query rank]
  weights::Matrix kv_;   // [dim, hidden]
  weights::Matrix o_a_;  // [groups · rank, heads · dim / groups], a group's rows each
  weights::Matrix o_b_;  // [hidden, groups · rank]
  std::vector<float> q_a_norm_, kv_norm_;
  std::vector<float> sinks_;  // [heads]
  std::optional<Compressor> compressor_, index_compressor_;
  std::optional<EntryIndexer> indexer_;
};

}  // namespace wideep::model
