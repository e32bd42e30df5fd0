// SPDX-License-Identifier: Apache-2.0
//
// Replays recorded routing through the online balancer, with the policy code of an engine but
// without weights. Reports the imbalance that each mode would have left, and the moves:
//
//   off      experts in order, an equal split: no balancer
//   static   a placement planned once, from the first window
//   online   the static placement at first, then the policy's updates
//   perfect  a lower bound for every placement and split
//   past     an ideal plan of the window before, with its shares: the best that knowledge of past
//            load alone can give (the noise floor of share_update window)
//
// With iteration_ms the plan's own time counts: an update is in service later by the iterations
// that planning and copying take, and until a plan is ready the policy gets the counts of the
// iterations in between as one, as an engine's balancer does.
//
// static and online split tokens as the policy does: by the iteration's best shares, by the
// window's, or equally (policy trt). An update planned after iteration i is in service from
// iteration i + 1 + copy_iterations on. The first window is only for planning and is not evaluated.
//
// Thread safety: pure function of its arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "online/request_stream.h"
#include "online/request_trace.h"
#include "online/update_policy.h"
#include "wideep/status.h"

namespace wideep::online {

struct ReplayOptions {
  balance::PlanShape shape;        // E, R, S
  std::string planner = "wideep";  // of the static placement
  PolicyOptions policy;
  StreamOptions stream;
  int64_t window_tokens = 16384;  // of one line of the report; rounded to iterations, at least 1
  int copy_iterations = 1;        // ≥ 0
  // How long an iteration takes, ≥ 0; 0: whatever a plan takes, it is copied in copy_iterations.
  double iteration_ms = 0.0;
  // At which a rank copies experts while it serves, > 0; with policy.bytes_per_expert.
  double copy_bytes_per_second = 10e9;
  bool start_in_order = false;  // true: online starts with the experts in order instead
  std::function<void()> iteration_done = [] {};
};

// Imbalance ratios, mean over layers and iterations.
struct ReplayFigures {
  double off = 0.0;
  double planned = 0.0;  // static
  double online = 0.0;
  double perfect = 0.0;
  double past = 0.0;
};

struct ReplayWindow {
  int64_t first_iteration = 0;
  int num_iterations = 0;
  std::vector<int> domains;  // of its iterations, without repetition
  ReplayFigures figures;
  int64_t updates = 0;  // of layers, planned in this window
  int64_t moves = 0;    // of experts, all layers
};

struct ReplayResult {
  std::vector<ReplayWindow> windows;  // the first is only for planning: figures are 0
  ReplayFigures mean;                 // over all iterations after the first window
  int64_t num_iterations = 0;         // all
  int64_t num_tokens = 0;
  int64_t updates = 0;
  int64_t moves = 0;
  int64_t bytes = 0;
  // Of the online placement, sum of max / sum of mean - 1 over the evaluated iterations, so that
  // large iterations count as much as they cost. With start_in_order from the first iteration on.
  double online_by_tokens = 0.0;
  double static_by_tokens = 0.0;            // static, after the first window
  double moves_per_layer_and_window = 0.0;  // per window_tokens tokens after the first window
  double plan_seconds = 0.0;                // of all calls of the policy
  double longest_plan_seconds = 0.0;        // of one call
  int64_t longest_delay = 0;  // iterations from counts to their plan's service, the most
};

// Errors (invalid input): as make_update_policy and balance::make_planner; numbers below their
// range; fewer than two windows.
Result<ReplayResult> replay(const RequestTrace& trace, const ReplayOptions& options);

// The same with iterations of any origin; options.stream tells only how large they are.
Result<ReplayResult> replay(const NextIteration& next, int num_layers, int top_k,
                            const ReplayOptions& options);

}  // namespace wideep::online
