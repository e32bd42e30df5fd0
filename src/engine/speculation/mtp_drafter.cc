// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/mtp_drafter.h"

#include <numeric>

#include "base/check.h"
#include "base/try.h"

namespace wideep::engine {

using kernels::kPageTokens;

MtpDrafter::MtpDrafter(model::Model& model, const model::KvLayout& kv, IterationRecorder& recorder,
                       int most_rows)
    : model_(model), kv_(kv), recorder_(recorder) {
  for (int first = 0; first < most_rows; first += kPageTokens) {
    spare_.emplace_back(kv.page_bytes());
    spare_pages_.push_back(spare_.back().data());
  }
}

Status MtpDrafter::draft(const Scheduler::Step& step, std::span<const Yielded> yielded,
                         const Chain& chain, int64_t iteration) {
  drafts_.assign(step.sampled.size(), {});
  begin_step(step, yielded);
  WIDEEP_TRY(predict(chain, iteration));
  for (int pass = 2; pass <= chain.length; ++pass) {
    begin_pass(step, yielded, chain, pass);
    WIDEEP_TRY(predict(chain, iteration));
  }
  return {};
}

Status MtpDrafter::predict(const Chain& chain, int64_t iteration) {
  WIDEEP_TRY(model_.predict(batch_, from_, chain.rows_of_ranks, kv_, iteration, &predicted_));
  for (size_t i = 0; i < drafting_.size(); ++i) drafts_[drafting_[i]].push_back(predicted_[i]);
  return {};
}

// The rows of the step. A row is followed by the next token of the text; in a sequence that the
// step sampled, by what it yielded; and a row of a wrong draft by anything.
void MtpDrafter::begin_step(const Scheduler::Step& step, std::span<const Yielded> yielded) {
  batch_ = step.batch;
  batch_.logit_rows.clear();
  drafting_.clear();
  position_.assign(step.sampled.size(), 0);
  from_.resize(batch_.ids.size());
  std::iota(from_.begin(), from_.end(), 0);
  for (size_t row = 0; row < batch_.ids.size(); ++row) {
    const std::vector<int32_t>& text = step.owners[row]->tokens;
    const auto next = static_cast<size_t>(batch_.positions[row]) + 1;
    batch_.ids[row] = next < text.size() ? text[next] : 0;
  }
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    const auto first = static_cast<size_t>(step.first_row[i]);
    const std::span<const int32_t> tokens = yielded[i].tokens;
    for (size_t j = 0; j < tokens.size(); ++j) {
      batch_.ids[static_cast<size_t>(step.batch.logit_rows[first + j])] = tokens[j];
    }
    const int32_t last = step.batch.logit_rows[first + tokens.size() - 1];
    position_[i] = batch_.positions[static_cast<size_t>(last)];
    if (yielded[i].drafts == 0) continue;
    batch_.logit_rows.push_back(last);
    drafting_.push_back(i);
  }
}

bool MtpDrafter::has_slot(const Sequence& sequence, int position) const {
  return position / kPageTokens < static_cast<int>(sequence.pages.size());
}

// A row for each sequence that goes on drafting. All ranks have been told the number of rows before
// the step was sampled: those that are left over are a text of their own in spare pages.
void MtpDrafter::begin_pass(const Scheduler::Step& step, std::span<const Yielded> yielded,
                            const Chain& chain, int pass) {
  batch_.clear();
  batch_.tokens_of_ranks = chain.rows_of_ranks;
  from_.clear();
  owners_.clear();
  const auto add = [&](int32_t id, int position, int prompt_length, const model::PageList& pages,
                       int32_t from, Sequence* owner) {
    batch_.ids.push_back(id);
    batch_.positions.push_back(position);
    batch_.prompt_lengths.push_back(prompt_length);
    batch_.pages.push_back(&pages);
    from_.push_back(from);
    owners_.push_back(owner);
  };
  std::vector<size_t> drafting;
  for (size_t row = 0; row < drafting_.size(); ++row) {
    const size_t i = drafting_[row];
    Sequence& sequence = *step.sampled[i];
    const int position = position_[i] + pass - 1;
    if (yielded[i].drafts < pass || !has_slot(sequence, position)) continue;
    batch_.logit_rows.push_back(batch_.num_tokens());
    drafting.push_back(i);
    add(drafts_[i].back(), position, sequence.prompt_length(), sequence.pages,
        static_cast<int32_t>(row), &sequence);
  }
  drafting_ = std::move(drafting);
  WIDEEP_CHECK_LE(batch_.num_tokens(), chain.rows);
  for (int spare = 0; batch_.num_tokens() < chain.rows; ++spare) {
    add(0, spare, 0, spare_pages_, -1, nullptr);
  }
  recorder_.begin_pass(owners_);
}

}  // namespace wideep::engine
