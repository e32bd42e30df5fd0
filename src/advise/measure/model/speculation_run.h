// SPDX-License-Identifier: Apache-2.0
//
// What speculation brings: the same prompts without drafts and with each way to draft, in turn,
// over batch sizes and two turns of a conversation.
//
//   first turn    the prompts
//   second turn   each prompt, its answer, and the prompt again: a text that edits or repeats what
//                 is there
//
// Only steps without prompt tokens count, so that figures are those of decoding. The answers must
// be equal; it is an error if they are not.
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

// A way to draft: a name for people, and the settings.
struct DraftedBy {
  std::string name;
  parallel::SpeculativeConfig config;
};

struct SpeculationPlan {
  run::RunOptions run;
  std::vector<std::string> prompts;  // batch b takes the first b, from the beginning where they end
  std::vector<DraftedBy> drafters;
  std::vector<int> batches;
  int max_tokens = 128;
  int rounds = 5;
};

// The steps of one run.
struct SpeculationSteps {
  // One generating step: the requests in it, and the mean tokens that it has yielded for each.
  struct Step {
    int requests = 0;
    double tokens = 0;  // per request
  };
  std::vector<Step> steps;
  double seconds = 0;
  int64_t tokens = 0;
  run::SpeculationTotals totals;
  std::vector<int64_t>
      accepted;  // [0 … most drafts] steps of requests that accepted so many drafts

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  }
};

// One drafter with one batch in one turn.
struct SpeculationCell {
  int turn = 1;
  int batch = 0;
  std::string drafter;
  double without = 0;          // tokens per second without drafts, median of the rounds
  double with = 0;             // with them
  std::vector<double> ratios;  // [rounds], of the runs side by side
  SpeculationSteps last;       // of the last round

  double ratio() const;  // the median
};

// on_cell: called when a cell is measured. Errors: those of run::generate; answers that differ.
Status measure_speculation(const SpeculationPlan& plan,
                           const std::function<void(const SpeculationCell&)>& on_cell);

}  // namespace wideep::measure
