// SPDX-License-Identifier: Apache-2.0
//
// What the steps of dispatch and combine beside the copying of rows cost a rank: the same code as
// in an engine, in groups of any size, on one core.
//
// One thread plays rank 0. The other ranks have run two rounds before; since their routing is the
// same in all rounds, their rows, counts and results lie there, and in each further round only
// their flags are raised. So nobody waits, and times are those of rank 0's steps with what it reads
// in the caches of its core, as they are where every rank has a core of its own, but without the
// transfers between cores: these are in the copies of `wideep bench ep`.
//
// Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "ep/dispatch_combine.h"
#include "kernels/kernels.h"
#include "transport/shared_memory.h"

namespace wideep::measure {

// Each with a plain copy of what it reads before it.
enum class PlayedStep {
  kPrepare,      // publishing the counts, and raising their flag
  kCopyCounts,   // the counts of all ranks
  kCounts,       // looking at the flags of all ranks, reading their counts, and summing them
  kCopyLists,    // the lists of slots of all received messages
  kExpand,       // looking at the flags of all ranks, and listing the received rows by slot
  kCopyResults,  // of all tokens
  kFinalize,     // the sums over each token's results
};
inline constexpr size_t kPlayedSteps = 7;
using PlayedTimes = std::array<std::vector<double>, kPlayedSteps>;  // ns of each round

struct PlayedOptions {
  int num_ranks = 8;
  int tokens = 16;  // of each rank; each to as many ranks as possible
  int hidden = 64;  // elements of a row
  int num_experts = 256;
  int top_k = 8;  // at most 16
};

class PlayedGroup {
 public:
  // Errors: ranks that do not divide the experts, tokens below 0 (invalid input); the kernel
  // refuses the memory (failed).
  static Result<std::unique_ptr<PlayedGroup>> create(const PlayedOptions& options);

  // Adds the times of a round. Errors: those of DispatchCombine.
  Status round(PlayedTimes* times);

  int rows_received() const { return players_[0].exchange->num_entries(); }
  int lists_received() const { return static_cast<int>(lists_.size()); }
  // Of the last round: [num_experts] tokens of all ranks.
  std::span<const int32_t> totals() const { return totals_; }
  // [num_experts] tokens of one rank.
  std::span<const int32_t> counts(int rank) const {
    return players_[static_cast<size_t>(rank)].counts;
  }

 private:
  struct Player {
    std::unique_ptr<transport::Endpoint> endpoint;
    std::unique_ptr<ep::DispatchCombine> exchange;
    std::vector<int32_t> experts;  // [tokens, top_k]
    std::vector<int32_t> counts;   // [num_experts]
  };

  PlayedGroup(const PlayedOptions& options, const ep::DispatchShape& shape)
      : options_(options), layout_(shape) {}
  Status play_all();
  void raise_flags_of_others();
  Status time(PlayedStep copies, const std::function<void()>& copy, PlayedStep step,
              const std::function<Status()>& body, PlayedTimes* times);
  Status sum_counts();
  void copy_counts();
  void find_lists();
  void copy_lists();
  void copy_results();
  void finalize();
  const std::byte* rows() const { return reinterpret_cast<const std::byte*>(rows_.data()); }

  PlayedOptions options_;
  ep::BufferLayout layout_;
  uint32_t call_ = 0;
  std::shared_ptr<transport::SharedMemory> memory_;
  std::vector<Player> players_;  // [num_ranks]
  std::vector<int32_t> tokens_of_ranks_;
  std::vector<Bf16> rows_;               // [tokens, hidden]
  std::vector<const std::byte*> lists_;  // that rank 0 receives
  std::vector<std::byte> copied_;
  std::vector<int32_t> totals_;
  const kernels::Kernels* kernels_ = nullptr;
  std::vector<float> weights_;  // [top_k]
  std::vector<float> sums_;     // [hidden]
};

}  // namespace wideep::measure
