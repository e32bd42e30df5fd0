// SPDX-License-Identifier: Apache-2.0
//
// Iterations with what every rank has counted in them, and their files of expert statistics: counts
// of experts in a directory, and of a run with a load balancer those of slots in its folder
// recordings::kSlotsFolder.
//
//   events Iteration → add(), add(), ... → write("expert_statistic")
//
// Ranks may come and go (elastic runs): each rank of the run has a file, with zeros where it was
// not there. A slot's number is that of its rank among all ranks of the run, so that it does not
// change with the members; where a rank had fewer slots than in another iteration, the rest of its
// numbers have no tokens.
//
// Thread safety: one thread; write() may run on another one if nothing else does.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "run/event.h"
#include "run/run_plan.h"
#include "wideep/status.h"

namespace wideep::run {

class RecordedExperts {
 public:
  explicit RecordedExperts(ExpertRanks ranks) : ranks_(std::move(ranks)) {}

  // Which counts are taken: all that ranks send, or those that they were asked for
  // (RequestWriter::record_experts). kAskedOrIdle: a rank that is not asked yet must have had no
  // tokens; it joins ranks that record.
  enum class Taken { kAll, kAsked, kAskedOrIdle };
  // Keeps the iteration only if all of its tokens were counted; returns whether it did.
  bool add(const Iteration& iteration, Taken taken);
  void drop_first() { iterations_.pop_front(); }
  void clear() { iterations_.clear(); }

  size_t size() const { return iterations_.size(); }
  bool empty() const { return iterations_.empty(); }
  int64_t first() const { return iterations_.front().number; }  // REQUIRES: not empty
  int64_t last() const { return iterations_.back().number; }

  // Readers of the format want numbers that follow each other and fit an int: where the iterations'
  // own do not, they are renumbered, and meta_info.json has their own. Errors (failed): a file
  // cannot be written. REQUIRES: not empty.
  Status write(const std::string& directory) const;

 private:
  // [rank of the run][its MoE layer][experts or slots]; of slots empty where none were counted.
  using Counts = std::vector<std::vector<std::vector<int32_t>>>;
  struct Kept {
    int64_t number = 0;
    Counts experts, slots;
    std::vector<int> members;  // empty: all
  };
  // Where counts of slots lie in the files.
  struct SlotNumbers {
    int groups = 1;    // of ranks that dispatch to each other; each has slots of its own
    int owners = 0;    // ranks of a group with slots of their own, of the whole run
    int per_rank = 0;  // the most that a rank has had, borrowed ones included
    int num_slots() const { return groups * owners * per_rank; }
  };

  SlotNumbers slot_numbers() const;
  std::vector<int64_t> slots_in_place(const Kept& kept, size_t rank, size_t layer,
                                      const SlotNumbers& numbers) const;
  template <typename RowOf>
  Status write_counts(const std::string& directory, const recordings::StatisticsShape& shape,
                      int first, const RowOf& row_of) const;

  ExpertRanks ranks_;
  std::deque<Kept> iterations_;
};

}  // namespace wideep::run
