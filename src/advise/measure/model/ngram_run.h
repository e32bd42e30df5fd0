// SPDX-License-Identifier: Apache-2.0
//
// What n-gram drafts bring to conversations and to texts that repeat themselves: the runtime with
// and without them, in turn, and the tokens of every step of every request.
//
//   first turn    of each conversation
//   second turn   the first one, its answer, and the second question
//   translations  run once with each size of n-grams; nothing is timed
//
// Answers must be the same with drafts; it is an error if they are not.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "run/generate.h"
#include "wideep/status.h"

namespace wideep::measure {

// TensorRT-LLM's names: patterns of up to k tokens, up to v drafts.
struct NgramSizes {
  int k = 3;  // max_matching_ngram_size
  int v = 5;  // max_draft_len
  bool operator==(const NgramSizes&) const = default;
};

struct Conversation {
  std::string first;
  std::string second;  // empty: asks the first again, behind its answer
};

// A step of a request after the one that has computed its prompt's last token.
struct RequestStep {
  int64_t iteration = 0;  // of the run, from 0
  int tokens = 0;         // that it has yielded: the accepted length
};

struct DraftedRun {
  double seconds = 0.0;  // from the begin of the first iteration to the end of the last
  int num_requests = 0;
  std::vector<std::vector<int32_t>> answers;    // [requests]
  std::vector<std::string> texts;               // [requests]
  std::vector<std::vector<RequestStep>> steps;  // [requests]

  // Mean tokens of a step of a request; 0 without steps. Steps without a draft count: they yield 1.
  double accepted_length() const;
  // [length]: how many steps have yielded so many tokens, from 0 to `max`.
  std::vector<int64_t> lengths(int max) const;
};

// All prompts at once to ranks that run `batch` of them at the same time. sizes: null: no drafts.
Result<DraftedRun> run_drafted(const run::RunOptions& options,
                               const std::vector<std::string>& prompts, int max_tokens,
                               const NgramSizes* sizes);

struct NgramPlan {
  run::RunOptions run;
  std::vector<Conversation> conversations;
  std::vector<std::string> translations;
  std::vector<int> batches;       // requests at the same time
  std::vector<NgramSizes> sizes;  // of conversations
  std::vector<NgramSizes> translation_sizes;
  int requests_per_place = 8;  // a run has batch × this; never a conversation twice
  int max_tokens = 128;
  int rounds = 3;
};

// One turn with one batch and one size.
struct NgramCell {
  int turn = 1;
  int batch = 0;
  NgramSizes sizes;
  double without = 0.0;  // seconds without drafts, median of the rounds
  double with = 0.0;
  std::vector<double> ratios;  // [rounds] without / with, of runs side by side
  DraftedRun last;             // of the last round

  double ratio() const;  // the median
};

struct TranslationCell {
  NgramSizes sizes;
  DraftedRun run;
};

struct NgramReport {
  std::vector<NgramCell> turns;
  std::vector<TranslationCell> translations;
};

// on_run: called after each run, with how many of how many are done.
// Errors: those of run::generate; answers that differ.
Result<NgramReport> measure_ngram(const NgramPlan& plan,
                                  const std::function<void(int, int)>& on_run);

}  // namespace wideep::measure
