// SPDX-License-Identifier: Apache-2.0
//
// Online balancing on one rank: the layers whose experts move while the engine runs. Between two
// iterations all ranks switch the layers whose copies are complete: slots get their new records,
// the router its new table.
//
// Thread safety: one thread, that of the engine; background threads copy (online/online_rank.h).
#pragma once

#include <functional>
#include <vector>

#include "model/parts/expert_slots.h"
#include "model/parts/moe.h"
#include "online/online_rank.h"

namespace wideep::engine {

class OnlineLayers {
 public:
  // setup.placement: of this rank's pipeline stage. rank: in the stage. All that is passed by
  // reference outlives this.
  OnlineLayers(const online::OnlineSetup& setup, int rank, model::ExpertSlots& slots,
               model::MoeRunner& moe);
  // Leaves the placements as they are, and all records in the slots' own memory.
  ~OnlineLayers();
  OnlineLayers(const OnlineLayers&) = delete;
  OnlineLayers& operator=(const OnlineLayers&) = delete;

  // Adds the states of this rank's layers to the words that it exchanges before an iteration.
  void write_states(transport::AgreedWords& mine) const { rank_.write_states(mine); }
  // Switches the layers whose copies all ranks have reported complete: the same ones on every rank.
  void apply(std::span<const transport::AgreedWords> of_ranks, int64_t iteration);

  // layer: position among the MoE layers of the stage. counts: [num_experts] tokens of all ranks.
  void add_counts(int layer, std::span<const int32_t> counts) { rank_.add_counts(layer, counts); }
  // rows, ns: as OnlineRank has them.
  void end_iteration(int64_t iteration, int64_t rows, int64_t ns) {
    rank_.end_iteration(iteration, rows, ns);
  }

 private:
  void switch_layer(const online::PublishedLayer& published);

  model::ExpertSlots& slots_;
  model::MoeRunner& moe_;
  std::vector<int> layers_;                     // of the model
  std::vector<balance::Placement> placements_;  // of layers_, as they are now
  online::OnlineRank rank_;                     // last: its threads use the members above
};

}  // namespace wideep::engine
