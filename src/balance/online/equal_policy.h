// SPDX-License-Identifier: Apache-2.0
//
// The online balancer's policy for engines that divide an expert's tokens equally among its
// replicas, as vLLM, TensorRT-LLM and SGLang's default do: there shares cannot follow the load, so
// only moves help.
//
// Like policy wideep (update_policy.h) it looks at a layer when a sample of the load window is
// complete, and before that when the text has changed or the open sample is evidence enough; judges
// placements on the window's weighted samples; and makes moves only if they pay:
//
//   gain of the moves · rows per rank in horizon_tokens  ≥  moves · rows_per_move
//
// The moves are those of balance::Repairer on the expected load, with limits of 1, 2, 4, … moves,
// of which the one with the largest net gain is taken: the first moves gain most.
//
// Evidence: with n rows, a rank of R that is balanced gets 1 + x times its n / R rows with a
// probability of at most exp(−n/R · h(x)), h(x) = (1 + x) ln(1 + x) − x (Bennett's bound). So the
// hottest rank is hot by more than noise if n/R · h(x) ≥ ln(1 / rate) + ln R. No move is made
// without that, in the newest sample or in all samples together: equal shares pass no noise on to
// other replicas, so a search on noise would always find moves.
#pragma once

#include <memory>

#include "online/update_policy.h"
#include "wideep/status.h"

namespace wideep::online {

// Of the options, policy, share_update, turn_ms and drift_margin have no meaning here. The shares
// of its updates are equal ones. Errors as make_update_policy.
Result<std::unique_ptr<UpdatePolicy>> make_equal_policy(const PolicyShape& shape,
                                                        const PolicyOptions& options);

}  // namespace wideep::online
