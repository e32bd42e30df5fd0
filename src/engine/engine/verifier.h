// SPDX-License-Identifier: Apache-2.0
//
// Which tokens a step yields for a sequence: the one sampled after its last token, and one more for
// each draft that is the token sampled before it. Every token is sampled with the random numbers of
// its place in the answer, so drafts change none, but for relaxed acceptance
// (engine/speculation/relaxed_acceptance.h). A request with a grammar gets only tokens that the
// grammar allows after those before them, drafts included; its acceptance is never relaxed.
//
// Thread safety: verify() may be called from several threads, for different sequences.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/reporter.h"
#include "engine/sampler.h"
#include "engine/speculation/relaxed_acceptance.h"
#include "schedule/request.h"

namespace wideep::engine {

class Constraints;

// A token that a step yields.
struct Verdict {
  Sampled sampled;
  FinishReason reason = FinishReason::kNotFinished;
  std::vector<Sampled> likely;  // if the verifier reports them
};

class Verifier {
 public:
  // end_tokens: of the model. reports: whether Verdict::likely is wanted. constraints: null: no
  // request has a grammar. References outlive this.
  Verifier(const kernels::Kernels& kernels, const std::vector<int>& end_tokens,
           const std::optional<RelaxedAcceptance>& relaxed, bool reports,
           Constraints* constraints = nullptr)
      : kernels_(kernels),
        end_tokens_(end_tokens),
        relaxed_(relaxed),
        reports_(reports),
        constraints_(constraints) {}

  // At least one verdict. The last one is kNotNumbers where no token follows from the logits.
  // logits_after(i): after the sequence's last token (0) and its num_verifying drafts. Notes in the
  // sequence whether it thinks, and how far it has followed its grammar.
  std::vector<Verdict> verify(Sequence& sequence,
                              const std::function<std::span<const float>(int)>& logits_after) const;

  // Whether the sequence ends with `token`, which follows `before` others that have not been
  // appended yet either. The result depends only on what all stages of a pipeline know.
  FinishReason reason_to_finish(const Sequence& sequence, int32_t token, int before) const;

 private:
  // followed: its grammar, if it has one.
  Verdict verdict(const Sequence& sequence, int index, std::span<const float> logits, bool thinks,
                  const grammar::Progress& followed) const;
  Sampled sample_allowed(const Sequence& sequence, const Draw& draw, std::span<const float> logits,
                         const grammar::Progress& followed) const;
  void follow_grammar(Sequence& sequence) const;
  std::optional<Sampled> keep_draft(const Sequence& sequence, int index,
                                    std::span<const float> logits) const;

  const kernels::Kernels& kernels_;
  const std::vector<int>& end_tokens_;
  const std::optional<RelaxedAcceptance>& relaxed_;
  bool reports_;
  Constraints* constraints_;
};

}  // namespace wideep::engine
