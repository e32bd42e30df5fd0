// SPDX-License-Identifier: Apache-2.0
//
// Advice on disaggregated serving: servers that compute prompts only, servers that generate only,
// and how many of each, beside the best layout that does both.
//
//   prefill     a server computes rounds of prompts, several in one iteration or one in chunks of
//               max_num_tokens. A prompt waits for half a round, and is there when its own is over.
//   transfer    pages of a prompt travel while later chunks are computed; what is not hidden so, at
//               least the last chunk's, is added to the time to the first token.
//   generation  iterations have no chunks, but the last page of each prompt that arrives, from which
//               the first token follows.
//
// On a machine of cores each rank of a server has a core, and layouts that do both have all cores:
// there tokens of a rank are those of a core.
//
// Servers of both kinds have the same format, since the bits of their pages must be the same. Time
// between tokens is a mean; the longest is that of an iteration with prompt tokens.
//
// Thread safety: pure functions; disaggregate() computes on all cores that the process may use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advise/advise.h"
#include "advise/rate_matching.h"

namespace wideep::advise {

// A server that computes prompts, with a number of them in a round.
struct PrefillServer {
  cost::Layout layout;
  int prompts = 0;         // of a round of each batch; with stages, of each of its micro-batches
  int chunks = 1;          // iterations of a round
  double seconds = 0.0;    // of computing a round
  double transfer = 0.0;   // seconds that the pages of a round keep the links
  double requests = 0.0;   // per second
  double memory = 0.0;     // bytes of a rank
  double imbalance = 0.0;  // as of a Candidate
  double error = 0.0;

  double exposed() const;  // seconds of the transfer that computing does not hide
  double ttft() const;     // seconds until the last page is at the server that generates
  double requests_per_rank() const { return requests / layout.num_ranks(); }
};

// Servers of both kinds, as many as match.
struct MatchedServers {
  PrefillServer prefill;
  Candidate generation;  // its ttft: from the last page's arrival to the first token
  ServerRatio ratio;
  double tokens_per_rank = 0.0;  // generated per second, of all servers' ranks
  double exact = 0.0;            // the same, if the ratio were exact
  // The most of aggregated layouts with the same TPOT that keep the limits; 0: none is as fast.
  double aggregated = 0.0;

  double ttft() const { return prefill.ttft() + generation.ttft; }
  double tokens_per_user() const { return generation.tokens_per_user; }
  double gain() const { return aggregated > 0.0 ? tokens_per_rank / aggregated : 0.0; }
};

struct DisaggregatedAdvice {
  double prompt_bytes = 0.0;  // pages of a prompt that travel
  // None is better in both figures; within the limits of the workload.
  std::vector<PrefillServer> prefill;  // requests_per_rank() and ttft()
  std::vector<Candidate> generation;   // tokens_per_rank and tokens_per_user, without drafts
  std::vector<Candidate> drafting;     // the same with drafts
  std::vector<MatchedServers> pareto;  // tokens_per_rank and tokens_per_user()
  std::optional<MatchedServers> best;
  std::vector<std::string> reasons;  // without a best: what is not possible
};

// aggregated: advise() of the same question. All servers together have at most choices.max_ranks.
// Errors (invalid input): as advise().
Result<DisaggregatedAdvice> disaggregate(const Question& question, const Advice& aggregated);

// As TensorRT-LLM names servers: "CTX=1xTEP-4|GEN=2xDEP-8": attention TP or DP, then EP, and the
// ranks of a server.
std::string name_of(const MatchedServers& servers);

// A server that computes rounds of so many prompts. REQUIRES: one prompt, or all of a round in
// max_num_tokens.
PrefillServer prefill_server(const cost::StepCost& cost, const Question& question, int prompts);

// A server that generates for a batch.
Candidate generation_server(const cost::StepCost& cost, const Question& question, int batch);

}  // namespace wideep::advise
