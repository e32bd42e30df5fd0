// SPDX-License-Identifier: Apache-2.0
//
// A request to the engine, and its state inside the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/progress.h"
#include "model/kv_layout.h"
#include "schedule/token_rules.h"

namespace wideep::grammar {
class Constraint;
}

namespace wideep::engine {

// Token ids that all copies share: a prompt may have many answers.
class SharedTokens {
 public:
  SharedTokens() : SharedTokens(std::vector<int32_t>()) {}
  SharedTokens(std::vector<int32_t> tokens)
      : tokens_(std::make_shared<const std::vector<int32_t>>(std::move(tokens))) {}

  const std::vector<int32_t>& ids() const { return *tokens_; }
  size_t size() const { return tokens_->size(); }
  bool is_copy_of(const SharedTokens& other) const { return tokens_ == other.tokens_; }

 private:
  std::shared_ptr<const std::vector<int32_t>> tokens_;  // never null
};

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int top_k = 0;             // 0: all tokens
  float top_p = 1.0f;        // in (0, 1]
  float min_p = 0.0f;        // least probability, as a share of the likeliest token's
  // engine/logit_changes.h
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;  // above 0
  int top_log_probabilities = 0;    // how many likely tokens are reported beside the sampled one
  uint64_t seed = 0;  // seed, Request::draw and the step determine every random number
};

// What an answer may be, as bytes (grammar::Grammar) that all copies share; null: anything.
using SharedGrammar = std::shared_ptr<const std::string>;

struct TokenBias {
  int32_t token = 0;
  float bias = 0.0f;  // of its logit
};

struct Request {
  int index = 0;        // chosen by the caller, unique in a run
  SharedTokens prompt;  // not empty
  // The first tokens of the answer, if they have been generated already.
  std::vector<int32_t> answered;
  int cached_on = -1;  // the rank whose cache likely has them; −1: none (only for its choice)
  int max_tokens = 0;  // to generate, those included; at least 1
  SamplingParams sampling;
  SharedGrammar grammar = nullptr;
  std::vector<TokenBias> bias = {};
  SharedRules rules = {};
  int draw = 0;             // distinguishes the random numbers of requests with the same seed
  bool ignore_eos = false;  // generate max_tokens even after an end token
  bool speculates = true;   // may be drafted for (engine/speculation)
  // When it ends, the experts of its tokens are wanted (run::RoutedExperts).
  bool returns_experts = false;
  // How far its prompt has come is wanted (run::PromptProgress).
  bool reports_progress = false;
  // Requests share pages only with those of the same salt; "": of none.
  std::string salt = {};
  // Who computes its prompt, too, or has computed its beginning before: pages are taken from there
  // (store/page_peer.h); "": nobody.
  std::string peer = {};
  // Where the last message of the prompt begins: a later prompt may have another one there, so a
  // state is kept before it. 0: not known.
  int turn_begin = 0;
};

// A request inside a rank's engine.
struct Sequence {
  Request request;
  int64_t arrival = 0;  // position in the order of submission
  // The prompt, then the generated tokens; empty before the first admission.
  std::vector<int32_t> tokens;
  int num_computed = 0;  // tokens whose keys and values are in the cache
  // What the present step has found; only for sequences that take part in it.
  struct BeforeStep {
    int num_computed = 0;
    uint64_t prefix = 0;
    bool is_spoiled = false;
  };
  std::optional<BeforeStep> before_step;
  // May follow the tokens (engine/speculation): the next step that the sequence takes part in
  // verifies as many of them as fit.
  std::vector<int32_t> drafts;
  int num_verifying = 0;  // of drafts, in flight
  // Where acceptance is relaxed (engine/speculation/relaxed_acceptance.h): whether the model thinks
  // after the first thought_to tokens.
  bool thinks = false;
  size_t thought_to = 0;
  // If the request has a grammar (engine/constraints.h), on ranks that sample: how far the answer
  // has followed it. It follows from the tokens alone.
  std::shared_ptr<grammar::Constraint> constraint;
  grammar::Progress followed;
  model::PageList pages;
  std::vector<int32_t> page_ids;  // [pages] in the PageCache
  uint64_t prefix = 0;            // PageCache::Prefix of the last full page
  // If the model keeps states (schedule/state_slots.h):
  int32_t state = -1;  // the slot of the state after num_computed tokens; −1: not running
  // [num_verifying] the slots of the states before each draft in flight; `state` follows all.
  std::vector<int32_t> draft_states;
  int32_t prefix_page = -1;   // the known page with that prefix
  int kept_at = 0;            // num_computed when the last snapshot was made or restored
  uint64_t own_snapshot = 0;  // prefix of its snapshot that the next one replaces; 0: none
  int branch = 0;             // where the pages end that others know, but no snapshot; 0: none
  int first_rank = 0;         // with context parallelism: the rank that holds the first page
  int cached_tokens = 0;      // prompt tokens that were found in the KV cache
  bool may_begin = false;     // has passed schedule/prompt_gate.h
  bool has_begun = false;     // of those that report it: its first chunk is reported
  int pauses = 0;             // how often it was paused
  int evictions = 0;          // of these, for want of pages
  bool lacks_pages = false;   // sits out this iteration for want of pages
  bool cancelled = false;     // ends with the token that is in flight
  // An expert of a token that is in its pages could not be read: ends without another token, and
  // what it has computed is nobody else's.
  bool is_spoiled = false;

  int prompt_length() const { return static_cast<int>(request.prompt.size()); }
  int num_generated() const { return static_cast<int>(tokens.size()) - prompt_length(); }
  int num_to_compute() const { return static_cast<int>(tokens.size()) - num_computed; }
  // Of a known token or, behind those, of a draft.
  int32_t token_at(int position) const {
    const auto at = static_cast<size_t>(position);
    return at < tokens.size() ? tokens[at] : drafts[at - tokens.size()];
  }
  // All known tokens are scheduled; the next token is in flight.
  bool awaits_token() const { return num_to_compute() == 0; }
  // Several tokens are to be computed: of the prompt, or after a pause also generated ones.
  bool in_prefill() const { return num_computed < prompt_length() || num_to_compute() > 1; }
};

}  // namespace wideep::engine
