// SPDX-License-Identifier: Apache-2.0
//
// Which servers divide a request between them, by what its prompt is predicted to cost. With D the
// server that answers, P one that computes prompts, t(S) the seconds that S takes for a token of a
// prompt, new(S) the tokens of this prompt that S does not know, and others(S) the answers that S
// gives beside it, whose next tokens all wait while S computes a prompt:
//
//   D alone   queue(D) + new(D) · t(D) · (1 + others(D))
//   P and D   max(queue(P) + earlier(P) on the way + new(P) · t(P) + new(D) on the way, queue(D))
//             + last · t(D) + new(P) · t(P) · others(P) + last · t(D) · others(D) + kLegSeconds
//
// `earlier` is what P takes, before it begins, from the server that knows most of the prompt, as D
// does from the second turn of a conversation on: at least kWorthPages more than P knows, where
// that costs less than to compute them. `new` is without it then.
//
// On the way a token takes what pages have taken lately that came to that server. queue(S) is what S
// has to compute before, and where more than kFullShare of its KV cache is in use, for room: up to
// kRoomSeconds, in proportion.
//
// `last` are the 1 to 64 tokens of the prompt's last page, which D computes itself. To both comes
// what makes answers go to the server with the fewest: kAnswerTokens · t(D) for each that it gives.
// The smallest sum wins; of equal ones D alone. What is said in DisaggregationOptions comes before.
//
// Servers whose role is to compute prompts answer where no other is up. Where no prompt of
// kLongTokens new tokens is divided, nor has been lately (is_busy_with_prompts), they would do
// little: then they answer, too.
//
// A server that has not measured t(S) takes what the others do. While none of them has, prompts with
// kLongTokens new ones go to a server whose role it is.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "schedule/role.h"
#include "server/disaggregation_options.h"
#include "server/router_costs.h"

namespace wideep::server {

// Where nobody has told the tokens of a prompt.
inline constexpr double kBytesPerToken = 4;
inline constexpr double kAnswerTokens = double{kRequestBytes} / kBytesPerToken;
// Fewer new tokens keep nobody waiting long.
inline constexpr double kLongTokens = 128;
// Until some have come. 64 tokens in a millisecond: pages of 128 KB over 10 GbE with room to spare.
inline constexpr double kTransferSecondsPerToken = 1e-3 / 64;
// Running answers end, and give their pages back; pages that do not fit are looked for again after
// as long at most (engine/run/prompt_fetches.cc).
inline constexpr double kFullShare = 0.9;
inline constexpr double kRoomSeconds = 2.0;
// Fewer pages are not worth a question more.
inline constexpr int kWorthPages = 2;
// What a second server costs beside its work: a connection, its look at its own pages.
inline constexpr double kLegSeconds = 0.002;

struct PdServer {
  engine::Role role = engine::Role::kBoth;
  bool is_up = true;        // if not, it answers only if none is, and computes for nobody
  bool may_answer = true;   // this request: it has not failed to
  bool may_prefill = true;  // this request for another server: the same, and it has said how
  bool gives_pages = true;  // to others: it has said how
  // Others have lately left long prompts to it, and soon will again.
  bool is_busy_with_prompts = false;
  double running = 0;           // answers that it gives
  double queued = 0;            // tokens of prompts to compute before this one
  double known = 0;             // tokens of this prompt that it need not compute
  double kv_share = 0;          // of its KV cache, in use
  std::optional<double> price;  // seconds for a token of a prompt
  std::optional<double> way;    // likewise, where its page comes from another server
};

struct PdPlan {
  size_t decode = kNoReplica;   // kNoReplica: nobody is left
  size_t prefill = kNoReplica;  // kNoReplica: the same computes the prompt
  size_t earlier = kNoReplica;  // whose pages `prefill` takes first; kNoReplica: nobody's
  double seconds = 0;           // predicted, to the first token
};

// may_divide: the request itself may be. Equal servers take turns: by `turn`, any number.
struct PdQuestion {
  double prompt_tokens = 0;
  bool may_divide = true;
  size_t turn = 0;
};
PdPlan plan_request(std::span<const PdServer> servers, const PdQuestion& question,
                    const DisaggregationOptions& options);

// Predicted, with a nominal price where a server has none.
struct PdCost {
  double seconds = 0;  // to the first token
  double waiting = 0;  // with what others wait
};
PdCost cost_alone(const PdServer& decode, double prompt_tokens);
// earlier: tokens that `prefill` takes from elsewhere, behind those that it knows.
PdCost cost_divided(const PdServer& prefill, const PdServer& decode, double prompt_tokens,
                    double earlier);

}  // namespace wideep::server
