// SPDX-License-Identifier: Apache-2.0
#include "server/page_teller.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace wideep::server {
namespace {

std::vector<int> owners_of_ranks(const run::RunPlan& plan) {
  std::vector<int> owners;
  for (int rank = 0; rank < plan.mapping.world_size(); ++rank) {
    owners.push_back(plan.num_request_owners() == 1 ? 0 : plan.mapping.coordinates(rank).tp_rank);
  }
  return owners;
}

}  // namespace

PageTeller::PageTeller(kv_events::EventsConfig config, const run::RunPlan& plan)
    : config_(std::move(config)),
      is_elastic_(plan.is_elastic()),
      owners_(owners_of_ranks(plan)),
      log_(plan.num_request_owners(), {.batches = config_.buffer_steps}) {}

void PageTeller::begin() {
  using std::chrono::microseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  log_.begin(std::chrono::duration_cast<microseconds>(now).count());
}

void PageTeller::start(const kv_events::ZmqLibrary* library) {
  if (library != nullptr) publisher_.emplace(*library, log_, config_);
}

void PageTeller::take(const run::PagesChanged& pages) {
  log_.take(owner_of(pages.rank), pages.is_cleared, pages.changes);
}

void PageTeller::died(int rank) {
  const int last = *std::ranges::max_element(owners_);
  for (int owner = 0; owner <= last; ++owner) {
    if (!is_elastic_ || owner == owner_of(rank)) log_.clear(owner);
  }
}

}  // namespace wideep::server
