// SPDX-License-Identifier: Apache-2.0
//
// How long an iteration takes: the sum over layers of what the busiest rank does.
//
//   attention  projections (dense products); keys and values of earlier positions, within the
//              layer's window or chunk, read once; scores. With context parallelism those of other
//              ranks over the link
//   dense      dense MLPs, shared experts, routers, LM head
//   experts    of the slowest rank (expert_load.h, expert_cost.h)
//   exchange   dispatch and combine (exchange_cost.h); all-reduces of ranks that compute a batch
//              together; meetings of ranks that share sequences, or have slices of the same
//              experts; rows to the next pipeline stage
//   fixed      of an iteration: scheduling, sampling, launches
//
// Thread safety: const methods may run at the same time.
#pragma once

#include <span>
#include <vector>

#include "cost/exchange_cost.h"
#include "cost/expert_load.h"
#include "cost/layer_cost.h"
#include "cost/layout.h"
#include "model/config/config.h"
#include "model/model_work.h"

namespace wideep::cost {

// Seconds.
struct StepTime {
  double attention = 0.0, dense = 0.0, experts = 0.0, dispatch = 0.0, combine = 0.0, joint = 0.0,
         fixed = 0.0;

  double seconds() const {
    return attention + dense + experts + dispatch + combine + joint + fixed;
  }
  StepTime& operator+=(const StepTime& other);
  StepTime& operator*=(double factor);
};

// A layer's dense products, without their rows.
struct LayerDense {
  DenseWork mixer, mlp;
};
// parts: ranks that compute a batch together.
LayerDense dense_of_layer(const model::ModelConfig& config, int layer, int parts);

class StepCost {
 public:
  // experts: [MoE layers of the config, in order]. REQUIRES: hardware supports layout.format; the
  // placed layers have layout.ep ranks.
  StepCost(const Hardware& hardware, const model::ModelConfig& config, const Layout& layout,
           std::vector<PlacedLayer> experts);

  // The iteration of one batch through all stages, if every batch of a stage has this shape: with
  // context parallelism that of the busiest of the ranks that share it (context_part.h). With
  // `stages` micro-batches under way, one ends every stages-th part of it.
  StepTime step(const model::StepShape& batch) const;
  // The same for batches of different shapes: ranks wait for each other in every layer, so each
  // part takes as long as on the rank that has the most of it. REQUIRES: there is a batch.
  StepTime step(std::span<const model::StepShape> batches) const;

  // The mean rank, or in every layer the one whose experts have the most work.
  enum class Rank { kMean, kBusiest };
  // What one rank computes of it, in processor time: as long as it takes without turns on a core.
  StepTime rank_time(const model::StepShape& batch, Rank rank) const;

  const Layout& layout() const { return layout_; }

 private:
  // What a rank does itself, in processor time, and what goes on without it.
  struct RankTime {
    StepTime own;
    StepTime wire;  // while other ranks have their turns on the cores
  };
  struct LayerTokens {
    double own = 0.0;  // of the batch
    double all = 0.0;  // of all batches
  };

  StepTime step(const model::StepShape& batch, double all_tokens) const;
  RankTime rank_time(const model::StepShape& batch, double all_tokens, Rank rank) const;
  // hardware: of a rank, for what all read. used: of the batch's tokens, the part whose
  // feed-forward results are used.
  StepTime layer_time(const Hardware& hardware, int layer, const model::StepShape& batch,
                      double used) const;
  void add_experts(const Hardware& hardware, const PlacedLayer& placed, const LayerTokens& tokens,
                   Rank rank, RankTime* time) const;
  void add_exchange(const Hardware& hardware, double tokens, RankTime* time) const;
  double slices_seconds(double rows) const;  // rows: (token, expert) pairs of a rank
  double all_reduce_seconds(double tokens) const;
  double meeting_seconds(const model::StepShape& batch, int layer) const;
  // The same in a layer that keeps states.
  double state_meeting_seconds(double tokens) const;

  // Bytes that all ranks read in an iteration.
  double working_set(const model::StepShape& batch, double all_tokens) const;
  double all_bytes() const;  // of the layers' weights, all slots

  Hardware hardware_;
  model::ModelConfig config_;
  Layout layout_;
  double turns_ = 1.0;  // ranks that share a core
  std::vector<PlacedLayer> experts_;
  std::vector<model::LayerElements> layers_;
  std::vector<LayerDense> dense_;
  std::vector<double> kv_bytes_;  // [layers] of a position, on a rank
};

}  // namespace wideep::cost
