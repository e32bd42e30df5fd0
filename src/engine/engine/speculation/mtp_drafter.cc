// SPDX-License-Identifier: Apache-2.0
//
// Both ways build batches from runs: a run is the rows of one sequence in the step, with what is
// known of its text after sampling. Number and order of rows must be those that ranks have agreed
// on before they knew how many drafts are right, so passes are filled up with spare rows, on pages
// that nobody reads; a row less on one rank would leave another waiting in a collective.
//
//   chain    pass 1: the rows of the step; pass k: one row for each sequence, from the pass before
//   layers   layer k: the rows of the step, and before them those that had only a draft last time
//            (Past::unsure). Their inputs are outputs of layer k − 1, of which one was kept.
#include "engine/speculation/mtp_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "base/try.h"
#include "engine/speculation/speculation.h"

namespace wideep::engine {

using kernels::kPageTokens;

MtpDrafter::MtpDrafter(model::Model& model, const model::KvLayout& kv, IterationRecorder& recorder,
                       int num_layers, int max_rows)
    : model_(model), kv_(kv), recorder_(recorder), num_layers_(num_layers) {
  const int max_spare = std::max(1, num_layers - 1) * max_rows;
  for (int first = 0; first < max_spare; first += kPageTokens) {
    spare_.emplace_back(kv.page_bytes());
    spare_pages_.push_back(spare_.back().data());
  }
}

int MtpDrafter::rows_for(const Scheduler::Step& step) const {
  if (num_layers_ == 1) {
    return static_cast<int>(std::ranges::count_if(step.sampled, [](const Sequence* sequence) {
      return Speculation::max_drafts(*sequence, 1) > 0;
    }));
  }
  int count = 0;
  for (size_t row = 0; row < step.owners.size(); ++row) {
    const bool begins = row == 0 || step.owners[row] != step.owners[row - 1];
    if (begins && step.batch.positions[row] > 0) ++count;
  }
  return count;
}

Status MtpDrafter::draft(const Scheduler::Step& step, std::span<const Yielded> yielded,
                         const Passes& passes, int64_t iteration) {
  drafts_.assign(step.sampled.size(), {});
  find_runs(step, yielded);
  return num_layers_ == 1 ? draft_chain(step, yielded, passes, iteration)
                          : draft_layers(step, yielded, passes, iteration);
}

// ---- what both ways share ----

// step.sampled is in the order of the rows.
void MtpDrafter::find_runs(const Scheduler::Step& step, std::span<const Yielded> yielded) {
  runs_.clear();
  int sampled = 0;
  for (int row = 0; row < step.batch.num_tokens(); ++row) {
    Sequence* owner = step.owners[static_cast<size_t>(row)];
    if (runs_.empty() || runs_.back().sequence != owner) {
      runs_.push_back({.sequence = owner,
                       .first_row = row,
                       .first_position = step.batch.positions[static_cast<size_t>(row)]});
    }
    ++runs_.back().num_rows;
  }
  for (Run& run : runs_) {
    run.last_known = static_cast<int>(run.sequence->tokens.size()) - 1;
    run.last_position = run.first_position + run.num_rows - 1;
    const auto next = static_cast<size_t>(sampled);
    if (next == step.sampled.size() || step.sampled[next] != run.sequence) continue;
    run.sampled = sampled++;
    run.last_known += static_cast<int>(yielded[next].tokens.size());
    run.last_position = run.last_known - 1;
  }
  WIDEEP_CHECK_EQ(static_cast<size_t>(sampled), step.sampled.size());
}

// Of the text, of what the step has yielded, or of the drafts after that; 0 where nothing is known.
int32_t MtpDrafter::token_at(const Run& run, std::span<const Yielded> yielded, int place) const {
  const std::vector<int32_t>& text = run.sequence->tokens;
  auto at = static_cast<size_t>(place);
  if (at < text.size()) return text[at];
  if (run.sampled < 0) return 0;
  at -= text.size();
  const std::span<const int32_t> tokens = yielded[static_cast<size_t>(run.sampled)].tokens;
  if (at < tokens.size()) return tokens[at];
  at -= tokens.size();
  const std::vector<int32_t>& drafts = drafts_[static_cast<size_t>(run.sampled)];
  return at < drafts.size() ? drafts[at] : 0;
}

void MtpDrafter::clear_pass() {
  batch_.clear();
  before_.clear();
  owners_.clear();
}

void MtpDrafter::add_row(int32_t id, int position, const Run& run, const float* before) {
  batch_.ids.push_back(id);
  batch_.positions.push_back(position);
  batch_.prompt_lengths.push_back(run.sequence->prompt_length());
  batch_.pages.push_back(&run.sequence->pages);
  before_.push_back(before);
  owners_.push_back(run.sequence);
}

// All ranks have been told a number of rows before the step was sampled. Those that are left over
// are a text of their own, which nobody reads.
void MtpDrafter::add_spare_rows(int num_rows) {
  WIDEEP_CHECK_LE(batch_.num_tokens(), num_rows);
  for (int position = 0; batch_.num_tokens() < num_rows; ++position) {
    batch_.ids.push_back(0);
    batch_.positions.push_back(position);
    batch_.prompt_lengths.push_back(0);
    batch_.pages.push_back(&spare_pages_);
    before_.push_back(nullptr);
    owners_.push_back(nullptr);
  }
}

Status MtpDrafter::predict(const Passes& passes, int layer, int64_t iteration) {
  recorder_.begin_pass(owners_);
  WIDEEP_TRY(model_.predict(
      {.layer = layer, .batch = batch_, .before = before_, .rows_of_ranks = passes.rows_of_ranks},
      kv_, iteration, &predicted_));
  for (size_t i = 0; i < drafting_.size(); ++i) {
    drafts_[static_cast<size_t>(runs_[drafting_[i]].sampled)].push_back(predicted_[i]);
  }
  return {};
}

// ---- a chain ----

Status MtpDrafter::draft_chain(const Scheduler::Step& step, std::span<const Yielded> yielded,
                               const Passes& passes, int64_t iteration) {
  begin_chain(step, yielded);
  WIDEEP_TRY(predict(passes, 0, iteration));
  for (int pass = 2; pass <= passes.length; ++pass) {
    go_on(yielded, pass);
    add_spare_rows(passes.rows);
    batch_.tokens_of_ranks = passes.rows_of_ranks;
    WIDEEP_TRY(predict(passes, 0, iteration));
  }
  return {};
}

// The rows of the step. Those of wrong drafts are followed by anything.
void MtpDrafter::begin_chain(const Scheduler::Step& step, std::span<const Yielded> yielded) {
  clear_pass();
  drafting_.clear();
  for (size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    const bool drafts = run.sampled >= 0 && yielded[static_cast<size_t>(run.sampled)].drafts > 0;
    for (int row = 0; row < run.num_rows; ++row) {
      const int position = run.first_position + row;
      if (drafts && position == run.last_position) {
        batch_.logit_rows.push_back(batch_.num_tokens());
        drafting_.push_back(i);
      }
      add_row(token_at(run, yielded, position + 1), position, run,
              model_.output(run.first_row + row));
    }
  }
  batch_.tokens_of_ranks = step.batch.tokens_of_ranks;
}

// A row for each sequence that goes on drafting, of which there is a page for the row.
void MtpDrafter::go_on(std::span<const Yielded> yielded, int pass) {
  clear_pass();
  std::vector<size_t> drafting;
  for (size_t row = 0; row < drafting_.size(); ++row) {
    const Run& run = runs_[drafting_[row]];
    const auto sampled = static_cast<size_t>(run.sampled);
    const int position = run.last_position + pass - 1;
    const auto page = static_cast<size_t>(position / kPageTokens);
    if (yielded[sampled].drafts < pass || page >= run.sequence->pages.size()) continue;
    batch_.logit_rows.push_back(batch_.num_tokens());
    drafting.push_back(drafting_[row]);
    add_row(drafts_[sampled].back(), position, run, model_.output(static_cast<int>(row)));
  }
  drafting_ = std::move(drafting);
}

// ---- layers ----

Status MtpDrafter::draft_layers(const Scheduler::Step& step, std::span<const Yielded> yielded,
                                const Passes& passes, int64_t iteration) {
  for (int layer = 0; layer < num_layers_; ++layer) {
    begin_layer(step, yielded, layer);
    add_spare_rows(step.batch.num_tokens() + layer * passes.rows);
    share_out(step, passes, layer);
    WIDEEP_TRY(predict(passes, layer, iteration));
    keep(layer);
  }
  for (const Run& run : runs_) {
    Past& past = pasts_[run.sequence->request.index];
    past.next = run.last_position + 1;
    past.pauses = run.sequence->pauses;
    past.outputs.swap(past.kept);
  }
  return {};
}

// The rows of the step, and before them those that only had a draft in the last step. Their inputs
// are rows of the layer before, or the one output that was kept.
void MtpDrafter::begin_layer(const Scheduler::Step& step, std::span<const Yielded> yielded,
                             int layer) {
  clear_pass();
  drafting_.clear();
  for (size_t i = 0; i < runs_.size(); ++i) {
    Run& run = runs_[i];
    const Past& past = pasts_[run.sequence->request.index];
    if (layer == 0) {
      run.has_past = !past.unsure.empty() && past.next == run.first_position &&
                     past.pauses == run.sequence->pauses;
      run.first_in_pass = run.first_position;
      run.row_in_pass = run.first_row;
    }
    const int first = run.has_past ? past.unsure[static_cast<size_t>(layer)] : run.first_position;
    const bool drafts =
        run.sampled >= 0 && yielded[static_cast<size_t>(run.sampled)].drafts > layer;
    const int row_in_pass = batch_.num_tokens();
    for (int position = first; position < run.first_position + run.num_rows; ++position) {
      if (drafts && position == run.last_position) {
        batch_.logit_rows.push_back(batch_.num_tokens());
        drafting_.push_back(i);
      }
      const float* before = position >= run.first_in_pass
                                ? model_.output(run.row_in_pass + position - run.first_in_pass)
                                : past.outputs[static_cast<size_t>(layer) - 1].data();
      add_row(token_at(run, yielded, position + layer + 1), position, run, before);
    }
    run.first_in_pass = first;
    run.row_in_pass = row_in_pass;
  }
  batch_.tokens_of_ranks = step.batch.tokens_of_ranks;
}

// The rows of each rank in the pass.
void MtpDrafter::share_out(const Scheduler::Step& step, const Passes& passes, int layer) {
  if (batch_.tokens_of_ranks.empty() || layer == 0) return;
  const auto ranks = static_cast<int>(batch_.tokens_of_ranks.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    batch_.tokens_of_ranks[at] =
        model_.group().is_alone()
            ? step.batch.tokens_of_ranks[at] + layer * passes.rows_of_ranks[at]
            : ep::chunk_of(batch_.num_tokens(), rank, ranks).size;
  }
}

// Keeps what the next step needs of the layer: where it had only drafts, and its last output before
// that.
void MtpDrafter::keep(int layer) {
  const auto at = static_cast<size_t>(layer);
  for (const Run& run : runs_) {
    Past& past = pasts_[run.sequence->request.index];
    past.unsure.resize(static_cast<size_t>(num_layers_));
    past.kept.resize(static_cast<size_t>(num_layers_));
    const int sure = std::min(run.last_position, run.last_known - layer - 1);
    past.unsure[at] = std::max(sure + 1, run.first_in_pass);
    if (layer + 1 == num_layers_) continue;
    if (sure < run.first_in_pass) {  // still that of the step before
      past.kept[at] = past.outputs.empty() ? std::vector<float>() : past.outputs[at];
      continue;
    }
    const int row = run.row_in_pass + sure - run.first_in_pass;
    past.kept[at].assign(model_.output(row), model_.output(row + 1));
  }
}

}  // namespace wideep::engine
