// SPDX-License-Identifier: Apache-2.0
//
// The expert half of a MoE layer over all ranks:
//
//   router → slot choice → dispatch → experts → combine, and the shared expert in parallel
//
// MoeRouting chooses the experts. TokenRows encodes the rows of this rank's tokens and sums up the
// results that come back. RankExperts computes results for the rows that this rank receives.
// MoeRunner orders these steps, chooses the slots, and runs the shared expert.
//
// If the layout limits the tokens of a dispatch (ep/chunks.h), everything except the router and the
// shared expert runs chunk by chunk.
//
// The shared expert hides the travel of rows. A rank that still waits for rows runs it before its
// experts. A rank that has received all rows (because it was the last) runs its experts at once,
// and the shared expert while it waits for results. If the layout has buffers for two calls, the
// rows of a chunk are sent before the experts of the previous chunk run, or after them if the
// buffers are still in use.
//
// Latent experts: a rank projects the rows of its own tokens before they are sent, and the sums of
// their results when all are back, so that the smaller rows travel.
//
// Collective: every rank of the group runs every MoE layer of every iteration, with or without
// tokens.
//
// Thread safety: one thread per rank.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ep/chunks.h"
#include "ep/dispatch_combine.h"
#include "ep/slot_choice.h"
#include "model/parts/expert_slots.h"
#include "model/parts/mlp.h"
#include "model/parts/moe_call.h"
#include "model/parts/moe_options.h"
#include "model/parts/moe_routing.h"
#include "model/parts/rank_experts.h"
#include "model/parts/token_rows.h"

namespace wideep::model {

// Runs the MoE layers of a rank, one at a time.
class MoeRunner {
 public:
  // endpoint: connects the ranks that dispatch to each other. shards: the ranks that hold slices of
  // the same experts as this one, in the order of the slices, with buffers for
  // RankExperts::between_rows; by default experts are whole.
  // With Combine::kReduced in the layout, bits depend on the placement.
  // REQUIRES: the layout's rows and results have room for experts' rows (expert_hidden_size()) in
  // the options' formats, and fit these formats (kernels::check_row_format); with shards the
  // results' format is not a coded one. config, slots and endpoint outlive the runner.
  MoeRunner(const ModelConfig& config, const balance::ModelPlacement& placement,
            const ExpertSlots& slots, transport::Endpoint& endpoint, const ep::BufferLayout& layout,
            const MoeOptions& options, TensorGroup shards = {});

  // observer: called after each layer; null: none.
  void set_observer(MoeObserver* observer) { observer_ = observer; }

  // Sets the placement of a layer from the next forward() on. Every rank must call it between the
  // same two iterations. shares: [S] the share of its expert's tokens that each slot receives;
  // empty: equal shares. REQUIRES: a MoE layer; the number of slots is unchanged; placement and
  // shares are valid.
  void set_placement(int layer, const balance::Placement& placement,
                     std::span<const double> shares) {
    chooser_.set_placement(layer, placement, shares);
  }

  // The input rows of the shared expert, for callers that run it themselves: see TokenRows.
  SourceRows shared_input(const Compute& compute, const float* h, std::span<const int32_t> tokens) {
    return token_rows_.shared_input(compute, h, tokens);
  }

  // Whether MoeCall::next is of use.
  bool looks_ahead() const;

  // Null if all ranks are on one node.
  const ep::NodeCrossing* crossing() const { return exchange_.crossing(); }

  // Adds the layer's output to call.x. Errors: a peer failed or did not answer in time.
  Status forward(const Compute& compute, const MoeWeights& weights, const MoeCall& call);

 private:
  // The state of the layer call that is running.
  struct Progress {
    const Compute& compute;
    const MoeWeights& weights;
    const MoeCall& call;
    kernels::InputRows rows;  // [wanted tokens] encoded for the dispatch
    int num_chunks;
    int begun = 0, sent = 0, reduced = 0;  // how many chunks have passed each step
    bool shared_done = false;
    const float* shared = call.shared;  // [wanted tokens, hidden]; null: none, or not computed yet
    float* sums = call.x;  // where results are added, see TokenRows::Returned; not the call's x if
                           // experts are latent

    ep::TokenRange tokens_of(int chunk) const {
      return ep::chunk_of(call.num_tokens, chunk, num_chunks);
    }
    transport::Awaited where() const { return {.layer = call.layer, .iteration = call.iteration}; }
  };
  // The chunk that is being sent.
  struct Chunk {
    std::vector<int32_t> tokens_of_ranks;  // [ep_size]
    std::vector<int32_t> counts;           // [num_experts] of this rank's tokens
    std::vector<int32_t> slots;            // [wanted tokens of the chunk, top_k]
    // [borrowed slots] of the calls in flight, by chunk & 1: the experts that this rank borrows.
    std::array<std::vector<int32_t>, 2> borrowed;
  };
  // Sums over all chunks, as in MoeLayerRecord.
  struct Totals {
    std::vector<int32_t> counts, group_counts, sent_entries, slot_counts;
    int64_t experts_cpu_ns = 0, shared_cpu_ns = 0, exchange_cpu_ns = 0;
    int64_t experts_rows = 0;
  };
  enum class Wait { kNo, kYes };

  bool reduced() const { return shape_.combine == ep::Combine::kReduced; }

  Status open(const Compute& compute);
  int64_t worked_ns(const Compute& compute) const;
  void start_totals();
  void report(const MoeCall& call) const;

  SourceRows latent_rows(const Compute& compute, const MoeWeights& weights, const SourceRows& rows);
  void add_latent(Progress& progress);

  Status run_chunks(Progress& progress);
  Status send_chunk(Progress& progress, int chunk, Wait wait);
  Status begin_chunk(Progress& progress);
  Status receive(const Progress& progress);
  Status reduce_chunk(Progress& progress);

  bool splits_by_counts(const Progress& progress) const;
  bool lends(const Progress& progress) const;
  Status choose_slots(const Progress& progress, ep::TokenRange tokens);
  void keep_wanted_slots(ep::TokenRange tokens);

  void order_experts(const Progress& progress, int chunk);
  Status run_experts(Progress& progress, int chunk);
  int64_t tokens_of_all(const Progress& progress) const;
  void look_ahead(const Progress& progress);
  void run_shared(Progress& progress);
  void add_shared(Progress& progress);
  void gate_shared(Progress& progress);

  const ModelConfig& config_;
  transport::Endpoint& endpoint_;
  ep::DispatchShape shape_;
  balance::ShareUpdate share_update_;
  bool counts_slots_;
  MoeObserver* observer_ = nullptr;

  MoeRouting routing_;
  MoeRouting next_routing_;          // of the layer that follows
  std::vector<float> next_weights_;  // [num_experts]
  ep::SlotChooser chooser_;
  TokenRows token_rows_;
  ep::DispatchCombine exchange_;
  ResidentExperts* resident_;  // null: all experts are in memory
  RankExperts experts_;
  MlpRunner shared_runner_;
  Scratch shared_out_, shared_gates_, shared_gates_cast_;
  Scratch latent_rows_, latent_sums_, latent_out_, latent_cast_;
  std::vector<const void*> wanted_sums_;

  Chunk chunk_;
  Totals totals_;
};

}  // namespace wideep::model
