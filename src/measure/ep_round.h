// SPDX-License-Identifier: Apache-2.0
//
// One rank's part of `wideep bench ep`: rows, routing and rounds of a number of tokens.
//
// A round is what a MoE layer does without its experts: begin, rows coded where they travel so,
// dispatch, combine, and the sum of each token's results, weighted (ep_sums.h). The results are
// there, coded, before the first round, or each round makes them.
//
// Thread safety: one thread per rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/aligned_bytes.h"
#include "ep/dispatch_combine.h"
#include "kernels/kernels.h"
#include "measure/ep_routing.h"
#include "measure/ep_sums.h"

namespace wideep::measure {

// Where a round's time went, in nanoseconds.
struct EpPhases {
  int64_t prepare = 0;   // counts to every rank
  int64_t dispatch = 0;  // rows coded and out, and those of all others in
  int64_t combine = 0;   // results made, where they are not there, back and summed
  int64_t all() const { return prepare + dispatch + combine; }
};

// What all ranks do alike.
struct EpRoundSetup {
  EpGroup group;
  int hidden = 7168;
  kernels::RowFormat rows = kernels::RowFormat::kBf16;     // dispatched
  kernels::RowFormat results = kernels::RowFormat::kBf16;  // combined
  ep::Combine combine = ep::Combine::kExact;
  EpSum sum = EpSum::kRow;
  // In every round: written as bf16 rows, as experts write them, and where results travel coded,
  // coded from these in a second pass. False: they are there.
  bool makes_results = false;
  std::optional<ep::Strategy> strategy;  // none: the one that moves fewer bytes
  int num_tokens = 0;                    // of each rank
  const kernels::Kernels* kernels = nullptr;
};
ep::DispatchShape dispatch_shape(const EpRoundSetup& setup);

class EpRounds {
 public:
  EpRounds(const EpRoundSetup& setup, transport::Endpoint& endpoint);

  // Before the first round. Collective, all ranks with the same setup.
  // Errors: those of round(); failed: a sum that is not what was sent.
  Status start();
  // phases: as they were where rounds are not timed.
  Status round(EpPhases* phases);
  // Looks at the clock would be a fifth of a round without tokens.
  bool are_timed() const { return setup_.num_tokens > 0; }

  // Copies as many bytes as a round sends and pulls, from and to the same addresses, without a
  // protocol: the rows into the messages, the results onto the row of their token's sum, but for
  // one that lies there.
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
  bool reduced() const { return setup_.combine == ep::Combine::kReduced; }
  void fill_rows();
  void route();
  void fill_results();
  std::vector<std::byte*> places_of_results() const;
  void make_results();
  void list_copies();
  void reduce();
  float expected_sum(int token) const;
  Status check_sums() const;

  EpRoundSetup setup_;
  transport::Endpoint& endpoint_;
  ep::BufferLayout layout_;
  ep::DispatchCombine exchange_;
  std::vector<int32_t> experts_;          // [num_tokens, top_k], slots too
  std::vector<float> weights_;            // the same
  std::vector<float> ones_;               // [top_k]
  std::vector<Bf16> result_;              // [hidden], what every expert of this rank returns
  base::AlignedBytes plain_results_;      // [results, hidden] bf16, of those that travel coded
  std::vector<int32_t> counts_;           // [num_experts]
  std::vector<int32_t> tokens_of_ranks_;  // [num_ranks]
  base::AlignedBytes rows_;               // [num_tokens, hidden] bf16
  base::AlignedBytes coded_;              // [num_tokens] rows as they travel; empty: rows_ does
  EpSums sums_;
  std::vector<std::byte*> result_places_;  // where makes_results
  std::vector<Copy> copies_;
};

}  // namespace wideep::measure
