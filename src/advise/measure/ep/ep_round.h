// SPDX-License-Identifier: Apache-2.0
//
// One rank's part of `wideep bench ep`: the rows and the routing of its tokens, and the rounds.
//
// A round is a MoE layer without its experts: begin (exchange of counts), conversion of rows to
// their format, dispatch, combine, and the weighted sum of each token's results (ep_sums.h). The
// experts' results are written once before the first round, or in every round (makes_results).
//
// Thread safety: one thread per rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/aligned_bytes.h"
#include "ep/dispatch_combine.h"
#include "kernels/kernels.h"
#include "measure/ep/ep_routing.h"
#include "measure/ep/ep_sums.h"

namespace wideep::measure {

// Where a round's time went, in nanoseconds.
struct EpPhases {
  int64_t prepare = 0;   // exchange of counts with every rank
  int64_t dispatch = 0;  // conversion and sending of rows, waiting for those of all other ranks
  int64_t combine = 0;   // writing of results (if makes_results), bringing them back, sums
  int64_t all() const { return prepare + dispatch + combine; }
};

// The settings of a round, which must be equal on all ranks.
struct EpRoundSetup {
  EpGroup group;
  int hidden = 7168;
  kernels::RowFormat rows = kernels::RowFormat::kBf16;     // dispatched
  kernels::RowFormat results = kernels::RowFormat::kBf16;  // combined
  ep::Combine combine = ep::Combine::kExact;
  EpSum sum = EpSum::kRow;
  // True: every round writes the results as bf16 rows, as experts do, and converts them to
  // `results` in a second pass if that is another format. False: they are written before the first
  // round.
  bool makes_results = false;
  std::optional<ep::Strategy> strategy;  // nothing: the one that moves fewer bytes
  int num_tokens = 0;                    // per rank
  const kernels::Kernels* kernels = nullptr;
};
ep::DispatchShape dispatch_shape(const EpRoundSetup& setup);

class EpRounds {
 public:
  EpRounds(const EpRoundSetup& setup, transport::Endpoint& endpoint);

  // Call before the first round(). Collective: all ranks call it with the same setup. Runs rounds
  // to check the exchange. Errors: those of round(); failed: a result or a token's sum is wrong, by
  // more than ep_check.h permits the formats.
  Status start();
  // Collective. phases: not written if !are_timed(). Errors: those of DispatchCombine.
  Status round(EpPhases* phases);
  // Empty rounds are not timed one by one: reading the clock would be a fifth of their time.
  bool are_timed() const { return setup_.num_tokens > 0; }

  // Copies as many bytes as a round sends and pulls, from and to the same addresses, but without
  // flags and sums: the rows into the messages, each result onto its token's row, except a result
  // that is already there.
  // REQUIRES: no rank is in a round.
  void copy_round();
  // Bytes that this rank sends and pulls in a round.
  int64_t bytes_per_round() const;

 private:
  struct Copy {
    const std::byte* from;
    std::byte* to;
    size_t bytes;
  };
  const std::byte* rows_to_send();
  bool reduced() const { return setup_.combine == ep::Combine::kReduced; }
  void fill_rows();
  void route();
  void fill_results();
  std::vector<std::byte*> places_of_results() const;
  void make_results();
  void list_copies();
  void reduce();
  void ranks_of_results(int token, std::vector<int>* ranks) const;
  double expected_sum(int token) const;
  Status check_results() const;
  Status check_sums() const;

  EpRoundSetup setup_;
  transport::Endpoint& endpoint_;
  ep::BufferLayout layout_;
  ep::DispatchCombine exchange_;
  std::vector<int32_t> experts_;          // [num_tokens, top_k], also their slots
  std::vector<float> weights_;            // [num_tokens, top_k]
  std::vector<float> ones_;               // [top_k]
  std::vector<Bf16> result_;              // [hidden], the result of every expert of this rank
  base::AlignedBytes plain_results_;      // [results, hidden] bf16, before they are coded
  std::vector<int32_t> counts_;           // [num_experts]
  std::vector<int32_t> tokens_of_ranks_;  // [num_ranks]
  base::AlignedBytes rows_;               // [num_tokens, hidden] bf16
  base::AlignedBytes coded_;              // [num_tokens] rows in their format; empty if it is bf16
  EpSums sums_;
  std::vector<std::byte*> result_places_;  // only if makes_results
  std::vector<Copy> copies_;
  bool is_checked_ = false;  // this round
};

}  // namespace wideep::measure
