// SPDX-License-Identifier: Apache-2.0
#include "run/offer_shares.h"

#include "base/try.h"
#include "run/page_geometry.h"

namespace wideep::run {

Result<OfferShares> share_offers(const RunPlan& plan, int rank,
                                 const std::function<bool(int rank)>& is_on_same_node) {
  if (!plan.joint) return OfferShares();  // no other rank has its requests
  OfferShares shares{.of_pages = {.index = 0, .count = 0}, .of_states = {.index = 0, .count = 0}};
  const auto add = [rank](PromptStore::Share& share, bool is_same, int other) {
    share.count += is_same ? 1 : 0;
    share.index += is_same && other < rank ? 1 : 0;
  };
  WIDEEP_TRY_ASSIGN(const PageGeometry own, page_geometry(plan, rank, ""));
  for (const int other : plan.mapping.group(parallel::Axis::kTp, rank)) {
    if (other != rank && !is_on_same_node(other)) continue;
    WIDEEP_TRY_ASSIGN(const PageGeometry geometry, page_geometry(plan, other, ""));
    add(shares.of_pages, geometry.page == own.page, other);
    add(shares.of_states, geometry.state == own.state, other);
  }
  return shares;
}

Result<OffersToFront> offers_to_front(const RunPlan& plan, int rank,
                                      const std::function<bool(int rank)>& is_on_fronts_node) {
  if (is_on_fronts_node(rank)) return OffersToFront();
  OffersToFront offers{.pages = true, .states = true};
  if (!plan.joint) return offers;
  WIDEEP_TRY_ASSIGN(const PageGeometry own, page_geometry(plan, rank, ""));
  for (const int other : plan.mapping.group(parallel::Axis::kTp, rank)) {
    if (!is_on_fronts_node(other)) continue;
    WIDEEP_TRY_ASSIGN(const PageGeometry geometry, page_geometry(plan, other, ""));
    offers.pages = offers.pages && geometry.page != own.page;
    offers.states = offers.states && geometry.state != own.state;
  }
  return offers;
}

}  // namespace wideep::run
