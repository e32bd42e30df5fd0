// SPDX-License-Identifier: Apache-2.0
//
// Hyper-connections (arXiv:2409.19606) whose mixing matrix is doubly stochastic (mHC,
// arXiv:2512.24880): around a mixer or a feed-forward part, in the place of x += part(x). The
// residual stream of a token is n streams:
//
//   w                = mix · x · rsqrt(mean(x²) + ε)           over all streams of the token
//   pre              = σ(w_pre · scale_0 + base_pre) + ε
//   post             = 2 σ(w_post · scale_1 + base_post)
//   comb             = sinkhorn(softmax(w_comb · scale_2 + base_comb))
//   input of a part  = Σ_s pre_s · x_s
//   x_s              = post_s · part(input) + Σ_t comb_ts · x_t
//
// The part sees one row for each token, and so do experts and what travels to them. All is float32,
// and of each token on its own.
//
// Thread safety: weights are constant; a HyperConnection belongs to one rank.
#pragma once

#include <string>
#include <vector>

#include "model/parts/compute.h"
#include "model/parts/part_cost.h"
#include "weights/weight_loader.h"

namespace wideep::model {

struct HyperWeights {
  weights::Matrix mix;       // [outputs, streams · hidden] float32
  std::vector<float> base;   // [outputs]
  std::vector<float> scale;  // [3], or [1] of the model's end

  bool empty() const { return base.empty(); }

  // name: as of hyper_cost(). Errors: as WeightLoader.
  static Result<HyperWeights> load(const ModelConfig& config, const weights::WeightLoader& loader,
                                   const std::string& name);
};

class HyperConnection {
 public:
  explicit HyperConnection(const ModelConfig& config) : config_(config) {}

  // The input of a part, [rows, hidden], of streams x [rows, streams · hidden]. Valid until the next
  // call. Keeps what leave() needs of the same rows.
  const float* enter(const Compute& compute, const HyperWeights& weights, const float* x, int rows);
  // Mixes the part's output y, [rows, hidden], and the streams.
  void leave(const Compute& compute, const float* y, int rows, float* x) const;
  // The same as enter(), without a later leave(). weights: may be empty, which means the mean of the
  // streams.
  const float* collapse(const Compute& compute, const HyperWeights& weights, const float* x,
                        int rows);

 private:
  // Calls run(row) on all threads.
  template <typename Run>
  static void for_each_row(const Compute& compute, int rows, Run run);
  const float* weigh(const Compute& compute, const HyperWeights& weights, const float* x, int rows);
  void mix_streams(const HyperWeights& weights, const float* mixed, float* post, float* comb) const;
  // [rows, streams] weights → [rows, hidden]
  void sum_streams(const float* pre, const float* x, float* out) const;

  const ModelConfig& config_;
  Scratch mixed_, cast_, pre_, collapsed_;
  std::vector<float> post_, comb_;  // [rows, streams], [rows, streams, streams]
};

}  // namespace wideep::model
