// SPDX-License-Identifier: Apache-2.0
//
// Which of the pages and states that several ranks have alike each of them offers to the places
// where prompts are kept (run/prompt_store.h): each is offered by one of them. So are the latents of
// a tensor group's ranks, which all have all of them, and heads that fewer ranks than there are
// would be enough for. Without shares each rank would write all of it to the disk.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <functional>

#include "run/prompt_store.h"
#include "run/run_plan.h"
#include "wideep/status.h"

namespace wideep::run {

struct OfferShares {
  PromptStore::Share of_pages, of_states;
};

// Of a rank, among those of its tensor group that are on the same node: others may have places of
// their own. Errors: as page_geometry().
Result<OfferShares> share_offers(const RunPlan& plan, int rank,
                                 const std::function<bool(int rank)>& is_on_same_node);

// What of a rank's pages and states goes to the front's node, too (PromptStore::offer_to).
struct OffersToFront {
  bool pages = false, states = false;
};

// All that no rank of its tensor group has alike there; of a rank on that node nothing. Errors: as
// page_geometry().
Result<OffersToFront> offers_to_front(const RunPlan& plan, int rank,
                                      const std::function<bool(int rank)>& is_on_fronts_node);

}  // namespace wideep::run
