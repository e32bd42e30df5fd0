// SPDX-License-Identifier: Apache-2.0
//
// A layout that the advisor weighs: which ranks share what, in which precision.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <string>

#include "base/dtype.h"
#include "kernels/weight_format.h"

namespace wideep::cost {

// Ranks: ep × expert_slices, `context` times in each of `stages` pipeline stages. With attention_dp
// each of the ep × expert_slices has requests of its own; else all of them compute each request
// together (tensor parallelism). With context parallelism the tokens of a request are dealt to
// `context` ranks (context_part.h), each of which is in another group with all experts.
struct Layout {
  int ep = 1;             // ranks that share the experts
  int expert_slices = 1;  // moe_tensor_parallel_size
  int stages = 1;         // pipeline_parallel_size
  int context = 1;        // context_parallel_size
  bool attention_dp = true;
  int num_slots = 0;    // of a layer; 0: the model is dense
  bool online = false;  // experts move while the model serves
  int drafts = 0;       // of each request, which a step verifies beside its next token
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  Dtype cache = Dtype::kBf16;

  int tensor_ranks() const { return ep * expert_slices; }  // tensor_parallel_size
  int num_ranks() const { return tensor_ranks() * context * stages; }
  // Groups of requests in a stage, each with a batch of its own.
  int num_batches() const { return attention_dp ? tensor_ranks() : 1; }
  int attention_parts() const { return attention_dp ? 1 : tensor_ranks(); }

  bool operator==(const Layout&) const = default;
};

// "EP 32, attention DP, 288 slots, fp8"; of a dense model "TP 4, bf16" or "DP 4, bf16".
std::string text_of(const Layout& layout);

}  // namespace wideep::cost
