// SPDX-License-Identifier: Apache-2.0
//
// The rows of a rank's own tokens in a MoE layer: encodes them for the dispatch and for the shared
// expert, and adds up the results that come back. Rows that experts take and put out are as wide as
// the model's, unless experts are latent (ModelConfig::moe_latent_size).
//
// Thread safety: one thread. Returned rows are valid until the next call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/dispatch_combine.h"
#include "model/config/config.h"
#include "model/parts/compute.h"
#include "model/parts/moe_call.h"
#include "model/parts/moe_options.h"

namespace wideep::model {

class TokenRows {
 public:
  // num_slices: the parts of an expert (ep::DispatchShape); each returns its columns of a result.
  TokenRows(const ModelConfig& config, int num_slices, const MoeOptions& options);

  // ---- out ----

  // The float32 rows of these tokens of h, [tokens of the rank, hidden].
  SourceRows rows_of(const float* h, std::span<const int32_t> tokens);

  // The rows of the call's wanted tokens.
  SourceRows wanted_rows(const MoeCall& call, std::span<const int32_t> wanted);

  // Encodes what experts take, float32, in the dispatch format: once, before slots are chosen.
  // weights: [rows] their factors; empty: 1. With MoeOptions::measure_noise it also measures the
  // noise.
  kernels::InputRows encode(const Compute& compute, const SourceRows& rows,
                            std::span<const float> weights);
  // The noise of the last encode().
  const RowNoise& noise() const { return noise_; }

  // The input rows of the shared expert for the same tokens: `encoded` if the model's rows travel,
  // in the experts' dtype and without factors, else the float32 rows.
  SourceRows shared_input(const MoeCall& call, std::span<const int32_t> wanted,
                          const kernels::InputRows& encoded);
  // The same for callers that run the shared expert themselves: equal values, so that the bits do
  // not depend on who runs it. h: [tokens of the rank, hidden] float32.
  SourceRows shared_input(const Compute& compute, const float* h, std::span<const int32_t> tokens);

  // ---- back ----

  // Tokens that were dispatched in one call and whose results have arrived.
  struct Returned {
    std::span<const int32_t> tokens;  // tokens of this rank, in the order of their dispatch
    // [tokens, top_k] expert weights; empty with Combine::kReduced, whose results are weighted.
    std::span<const float> weights;
    const float* shared = nullptr;  // [tokens, hidden] the shared expert's output; null: none
    float* x = nullptr;             // [tokens of the rank, width of results]
  };
  // x += residual_scale · (shared + Σ_k weight_k · result_k), of latent experts without that factor.
  // The sum is in top-k order, which does not depend on the placement. With Combine::kReduced: the
  // sum of the returned rows in the order of the ranks, which does.
  void add_results(const Compute& compute, const ep::DispatchCombine& exchange,
                   const Returned& returned);

 private:
  // Whether the model's rows travel as they are, in the experts' dtype.
  bool travel_plain() const {
    return width_ == hidden_ && !weight_on_input_ &&
           options_.dispatch_format() == kernels::row_format(options_.row_dtype);
  }
  SourceRows scale(const Compute& compute, const SourceRows& rows, std::span<const float> weights);
  kernels::InputRows encode(const Compute& compute, const SourceRows& rows);
  void add_token(const Compute& compute, std::span<const std::byte* const> results,
                 kernels::ReduceArgs args) const;

  int hidden_;  // of the model's rows
  int width_;   // of experts' rows
  int num_slices_;
  bool weight_on_input_;
  float residual_scale_;
  MoeOptions options_;
  std::vector<const void*> row_pointers_;
  Scratch encoded_, scaled_;
  std::vector<float> ones_;  // [top_k] weights for results that are weighted already
  RowNoise noise_;
};

}  // namespace wideep::model
