// SPDX-License-Identifier: Apache-2.0
//
// The rows of a rank's tokens in a MoE layer, on their way out and back: the form in which they are
// dispatched, the form in which the shared expert takes them, and the sum of the results that come
// back for them.
//
// Thread safety: one thread. Rows that are returned are valid until the next call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/dispatch_combine.h"
#include "model/compute.h"
#include "model/config.h"
#include "model/moe_call.h"
#include "model/moe_options.h"

namespace wideep::model {

class TokenRows {
 public:
  // num_slices: of an expert (ep::DispatchShape); each returns its columns of a result.
  TokenRows(const ModelConfig& config, int num_slices, const MoeOptions& options);

  // ---- out ----

  // The rows of the call's wanted tokens as they travel, coded once, before it is known to whom
  // they go. With MoeOptions::measure_noise also measures what that costs.
  kernels::InputRows encode(const Compute& compute, const MoeCall& call,
                            std::span<const int32_t> wanted);
  // Of the rows that were encoded last.
  const RowNoise& noise() const { return noise_; }

  // The rows of the same tokens as the shared expert takes them: `encoded` where rows travel in the
  // experts' dtype. And these rows for a caller who runs the shared expert on its own: the same
  // values, so that the bits do not depend on who runs it. h: [tokens of the rank, hidden] float32.
  SourceRows shared_input(const MoeCall& call, std::span<const int32_t> wanted,
                          const kernels::InputRows& encoded);
  SourceRows shared_input(const Compute& compute, const float* h, std::span<const int32_t> tokens);

  // ---- back ----

  // Tokens that were dispatched in one call and whose results have come.
  struct Returned {
    std::span<const int32_t> tokens;  // of the rank, in the order in which they were dispatched
    // [tokens, top_k] of their experts; empty where results have been weighted: Combine::kReduced.
    std::span<const float> weights;
    const float* shared = nullptr;  // [tokens, hidden], the shared expert's output; null: none
    float* x = nullptr;             // [tokens of the rank, hidden]
  };
  // x += shared + Σ_k weight_k · result_k, the sum in top-k order: the same order for every
  // placement. Combine::kReduced: the sum of the rows that came back, in the order of the ranks.
  void add_results(const Compute& compute, const ep::DispatchCombine& exchange,
                   const Returned& returned);

 private:
  // Whether rows travel in the experts' dtype.
  bool travel_plain() const {
    return options_.dispatch_format() == kernels::row_format(options_.row_dtype);
  }
  SourceRows rows_of(const float* h, std::span<const int32_t> tokens);
  kernels::InputRows encode(const Compute& compute, const SourceRows& rows);
  void add_token(const Compute& compute, std::span<const std::byte* const> results,
                 kernels::ReduceArgs args) const;

  int hidden_;
  int num_slices_;
  MoeOptions options_;
  std::vector<const void*> row_pointers_;
  Scratch encoded_;
  std::vector<float> ones_;  // [top_k] the weights of results that have been weighted
  RowNoise noise_;
};

}  // namespace wideep::model
