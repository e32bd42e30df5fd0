// SPDX-License-Identifier: Apache-2.0
//
// Drafts by the model's own prediction layer (multi-token prediction, MTP), as TensorRT-LLM's
// Eagle-style chain: the layer is applied once for each draft token.
//
//   pass 1    the rows of the step, each with the token that follows it. This fills the layer's
//   part
//             of the KV cache, for prompts too, and drafts after the last token of each sequence.
//   pass 2 …  one row for each sequence: the last draft and the layer's own output.
//
// The keys and values of a row lie in the slot of its token's predecessor. Those of rows that turn
// out to follow a wrong draft are overwritten when the right token comes there, before they are
// read. So they need no other pages than the step, but for the passes after the first one: those
// read what they wrote, and a draft ends where a sequence has no page for it.
//
// Pages are shared by their tokens (engine/page_cache.h), but the last slot of a page depends on
// the first token of the next page. Another sequence may find there what followed in the first one:
// this may cost it a draft, never a right answer.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_bytes.h"
#include "engine/iteration_recorder.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace wideep::engine {

class MtpDrafter {
 public:
  // most_rows: sequences that a step samples. References outlive this. REQUIRES: the model has a
  // prediction layer.
  MtpDrafter(model::Model& model, const model::KvLayout& kv, IterationRecorder& recorder,
             int most_rows);

  // The passes of a step, equal on all ranks that dispatch to each other.
  struct Chain {
    int length = 0;                      // passes, the first one included; at least 1
    int rows = 0;                        // of each later pass; also of other ranks of the group
    std::vector<int32_t> rows_of_ranks;  // the same as Batch::tokens_of_ranks
  };
  // What a step has yielded for a sequence that it sampled.
  struct Yielded {
    std::span<const int32_t> tokens;  // at least one
    int drafts = 0;                   // that may follow them, at most chain.length
  };
  // Drafts after each of step.sampled. Collective, as Model::predict(), after Model::forward() of
  // the step. REQUIRES: at most chain.rows sequences want drafts.
  Status draft(const Scheduler::Step& step, std::span<const Yielded> yielded, const Chain& chain,
               int64_t iteration);
  // [step.sampled] the drafts of the last draft().
  const std::vector<std::vector<int32_t>>& drafts() const { return drafts_; }

 private:
  void begin_step(const Scheduler::Step& step, std::span<const Yielded> yielded);
  void begin_pass(const Scheduler::Step& step, std::span<const Yielded> yielded, const Chain& chain,
                  int pass);
  Status predict(const Chain& chain, int64_t iteration);
  bool has_slot(const Sequence& sequence, int position) const;

  model::Model& model_;
  const model::KvLayout& kv_;
  IterationRecorder& recorder_;
  std::vector<base::AlignedBytes> spare_;
  model::PageList spare_pages_;

  model::Batch batch_;
  std::vector<int32_t> from_;      // [tokens of the batch] as in Model::predict()
  std::vector<size_t> drafting_;   // [logit rows] index in step.sampled
  std::vector<int32_t> position_;  // [step.sampled] of the row after which the first draft comes
  std::vector<Sequence*> owners_;  // [tokens of the batch]; null: of none
  std::vector<int32_t> predicted_;
  std::vector<std::vector<int32_t>> drafts_;
};

}  // namespace wideep::engine
