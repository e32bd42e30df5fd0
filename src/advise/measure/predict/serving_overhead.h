// SPDX-License-Identifier: Apache-2.0
//
// Measures what serving takes beside the engine's iterations: a small model's iterations as its
// own ranks tell them, and the same as clients of `wideep serve` see them.
//
//   request    time to the first token of a prompt of one token, less that between two tokens
//   iteration  time between two tokens less the iteration itself, with as many requests as ranks …
//   token      … and with 16: what is more is the tokens' own
//
// It is measured with a model that nothing else is predicted of, once for each number of ranks.
//
// Thread safety: one call at a time in a process.
#pragma once

#include <string>
#include <vector>

#include "advise/serving_simulation.h"
#include "base/scratch_directory.h"
#include "measure/predict/check_cells.h"

namespace wideep::measure {

class OverheadProbe {
 public:
  // program: `wideep`. ranks: up to 16 that divide 16. tokenizer: a tokenizer.json.
  static Result<OverheadProbe> make(const std::string& program, int ranks,
                                    const std::string& tokenizer);

  // A round. REQUIRES: the caller has started no other thread. Errors: a rank or the server failed;
  // interrupted.
  Status measure(run::RunView& view);

  // Medians of the rounds. REQUIRES: there was one; hardware is of this machine.
  advise::ServingOverhead result(const cost::Hardware& hardware) const;

 private:
  OverheadProbe(std::string program, int ranks, CheckedLayout layout)
      : program_(std::move(program)), ranks_(ranks), engine_(std::move(layout)) {}

  std::string program_;
  int ranks_;
  LayoutCheck engine_;
  std::shared_ptr<const base::ScratchDirectory> directory_;
  std::vector<double> requests_, few_, many_;  // seconds, of rounds; few and many: between tokens
};

}  // namespace wideep::measure
