// SPDX-License-Identifier: Apache-2.0
//
// One rank's part of `wideep bench ep`: rows, routing and rounds of a number of tokens.
//
// A round is what a MoE layer does without its experts: begin, rows coded where they travel so,
// dispatch, combine, and the float32 sum of each token's results, weighted, onto its output row.
// The results are there, coded, before the first round.
//
// Thread safety: one thread per rank.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_bytes.h"
#include "bench/ep_routing.h"
#include "ep/dispatch_combine.h"
#include "kernels/kernels.h"

namespace wideep::bench {

// Where a round's time went, in nanoseconds.
struct EpPhases {
  int64_t prepare = 0;   // counts to every rank
  int64_t dispatch = 0;  // rows coded and out, and those of all others in
  int64_t combine = 0;   // results back and summed
  int64_t all() const { return prepare + dispatch + combine; }
};

// What all ranks do alike.
struct EpRoundSetup {
  EpGroup group;
  int hidden = 7168;
  kernels::RowFormat rows = kernels::RowFormat::kBf16;     // dispatched
  kernels::RowFormat results = kernels::RowFormat::kBf16;  // combined
  int max_tokens = 256;
  const kernels::Kernels* kernels = nullptr;
};
ep::DispatchShape dispatch_shape(const EpRoundSetup& setup);

class EpRounds {
 public:
  EpRounds(const EpRoundSetup& setup, transport::Endpoint& endpoint);

  // For the rounds to come. Collective, all ranks with the same number: the group makes one round.
  // Errors: those of round(); failed: a sum that is not what was sent.
  Status set_tokens(int num_tokens);
  Status round(EpPhases* phases);

  // Copies as many bytes as a round sends and pulls, from and to the same addresses, without a
  // protocol: the rows into the messages, the results onto the bytes of one token.
  // REQUIRES: no rank is in a round.
  void copy_round();
  // That this rank's round sends and pulls.
  int64_t bytes_per_round() const;

 private:
  struct Copy {
    const std::byte* from;
    std::byte* to;
    size_t bytes;
  };
  const std::byte* travelling_rows();
  void route(int num_tokens);
  void fill_results();
  void list_copies();
  void reduce();
  Status check_sums() const;

  EpRoundSetup setup_;
  transport::Endpoint& endpoint_;
  ep::BufferLayout layout_;
  ep::DispatchCombine exchange_;
  int num_tokens_ = 0;
  std::vector<int32_t> experts_;          // [num_tokens, top_k], slots too
  std::vector<float> weights_;            // the same
  std::vector<int32_t> counts_;           // [num_experts]
  std::vector<int32_t> tokens_of_ranks_;  // [num_ranks]
  base::AlignedBytes rows_;               // [max_tokens, hidden] bf16
  base::AlignedBytes coded_;              // [max_tokens] rows as they travel; empty: rows_ does
  base::AlignedBytes sums_;               // [max_tokens, hidden] float32
  base::AlignedBytes one_token_;          // [top_k] results
  std::vector<Copy> copies_;
};

}  // namespace wideep::bench
