// SPDX-License-Identifier: Apache-2.0
//
// Drafts by the model's own prediction layers (multi-token prediction, MTP), in TensorRT-LLM's two
// ways:
//
//   chain    one layer, applied once for each draft (its Eagle style). The first pass has the rows
//            of the step, each with the token that follows it: this fills the layer's part of the
//            KV cache, for prompts too. Each later pass has a row for each sequence: the last draft
//            and the layer's own output.
//   layers   a layer for each draft (its "vanilla"). Layer k has the rows of the step, each with
//            the output of layer k − 1 and the token k places on. Where that token was only a
//            draft, the row is computed again in the next step.
//
// The keys and values of a row lie in the slot of its position. Those of rows that turn out to
// follow a wrong draft are overwritten when the right token comes there, before they are read. A
// chain writes a few slots ahead, and ends where a sequence has no page for them.
//
// Pages are shared by their tokens (schedule/page_cache.h), but the last slots of a page depend on
// the first tokens of the next page. Another sequence may find there what followed in the first
// one: this may cost it a draft, never a right answer.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/aligned_bytes.h"
#include "engine/iteration_recorder.h"
#include "model/model.h"
#include "schedule/scheduler.h"

namespace wideep::engine {

class MtpDrafter {
 public:
  // num_layers: of the model's prediction layers; 1: a chain. max_rows: sequences of a step.
  // References outlive this.
  MtpDrafter(model::Model& model, const model::KvLayout& kv, IterationRecorder& recorder,
             int num_layers, int max_rows);

  // What all ranks that dispatch to each other know of a step's passes before it is sampled.
  struct Passes {
    int length = 1;                      // of a chain, the first pass included
    int rows = 0;                        // see rows_for(), also of other ranks of the group
    std::vector<int32_t> rows_of_ranks;  // the same as Batch::tokens_of_ranks
  };
  // The sequences of a step that need rows beside those of the step. Chain: those that may draft.
  // Layers: those with earlier rows.
  int rows_for(const Scheduler::Step& step) const;

  // What a step has yielded for a sequence that it sampled.
  struct Yielded {
    std::span<const int32_t> tokens;  // none: it has failed, and ends
    int drafts = 0;                   // that may follow them
  };
  // Drafts after each of step.sampled. Collective, as Model::predict(), after Model::forward() of
  // the step.
  Status draft(const Scheduler::Step& step, std::span<const Yielded> yielded, const Passes& passes,
               int64_t iteration);
  // [step.sampled] the drafts of the last draft().
  const std::vector<std::vector<int32_t>>& drafts() const { return drafts_; }
  // The request has ended. No effect if it is not known.
  void end(int request) { pasts_.erase(request); }

 private:
  // The rows of a sequence in the step.
  struct Run {
    Sequence* sequence = nullptr;
    int first_row = 0;
    int num_rows = 0;
    int first_position = 0;
    int sampled = -1;       // index in step.sampled; −1: it was not
    int last_known = 0;     // place of the last token that is known now
    int last_position = 0;  // of its rows that belong to the text: without wrong drafts
    int first_in_pass = 0;  // position of its first row in the last pass
    int row_in_pass = 0;    // and the row
    bool has_past = false;
  };
  // Of a sequence whose layers draft, for its next step.
  struct Past {
    int next = 0;                             // where its rows will begin
    int pauses = 0;                           // of the sequence: afterwards it begins anew
    std::vector<int> unsure;                  // [layers] the first position that had only a draft
    std::vector<std::vector<float>> outputs;  // [layers] of the position before that
    std::vector<std::vector<float>> kept;     // the same for the step after this one
  };

  void find_runs(const Scheduler::Step& step, std::span<const Yielded> yielded);
  int32_t token_at(const Run& run, std::span<const Yielded> yielded, int place) const;
  void clear_pass();
  void add_row(int32_t id, int position, const Run& run, const float* before);
  void add_spare_rows(int num_rows);
  Status predict(const Passes& passes, int layer, int64_t iteration);

  Status draft_chain(const Scheduler::Step& step, std::span<const Yielded> yielded,
                     const Passes& passes, int64_t iteration);
  void begin_chain(const Scheduler::Step& step, std::span<const Yielded> yielded);
  void go_on(std::span<const Yielded> yielded, int pass);

  Status draft_layers(const Scheduler::Step& step, std::span<const Yielded> yielded,
                      const Passes& passes, int64_t iteration);
  void begin_layer(const Scheduler::Step& step, std::span<const Yielded> yielded, int layer);
  void share_out(const Scheduler::Step& step, const Passes& passes, int layer);
  void keep(int layer);

  model::Model& model_;
  const model::KvLayout& kv_;
  IterationRecorder& recorder_;
  int num_layers_;
  std::vector<base::AlignedBytes> spare_;
  model::PageList spare_pages_;          // of rows that belong to no sequence
  std::unordered_map<int, Past> pasts_;  // by request; layers only

  std::vector<Run> runs_;
  model::Batch batch_;
  std::vector<const float*> before_;  // [tokens of the batch] as in PredictionCall
  std::vector<Sequence*> owners_;     // [tokens of the batch]; null: of none
  std::vector<size_t> drafting_;      // [logit rows] index in runs_
  std::vector<int32_t> predicted_;
  std::vector<std::vector<int32_t>> drafts_;
};

}  // namespace wideep::engine
