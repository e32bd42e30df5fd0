// SPDX-License-Identifier: Apache-2.0
#include "kv_events/page_index.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace wideep::kv_events {
namespace {

SharedPage page_of(const engine::PageChange& change) {
  auto page = std::make_shared<KnownPage>();
  page->hash = hash_of(change.name);
  if (change.page > 0) page->parent = hash_of(change.before);
  page->page = change.page;
  page->tokens = change.tokens;
  return page;
}

void add_stored(const KnownPage& page, std::vector<Event>* events) {
  const bool follows = !events->empty() && events->back().kind == Event::kStored &&
                       page.parent == events->back().hashes.back();
  if (!follows) events->push_back({.kind = Event::kStored, .parent = page.parent});
  Event& event = events->back();
  event.hashes.push_back(page.hash);
  event.tokens.insert(event.tokens.end(), page.tokens.begin(), page.tokens.end());
}

void add_removed(uint64_t hash, std::vector<Event>* events) {
  if (events->empty() || events->back().kind != Event::kRemoved) {
    events->push_back({.kind = Event::kRemoved});
  }
  events->back().hashes.push_back(hash);
}

}  // namespace

std::vector<Event> stored_events(std::span<const SharedPage> pages) {
  std::vector<Event> events;
  for (const SharedPage& each : pages) add_stored(*each, &events);
  return events;
}

void sort_parents_first(std::vector<SharedPage>* pages, size_t max) {
  std::ranges::sort(*pages, [](const SharedPage& a, const SharedPage& b) {
    return std::tie(a->page, a->hash) < std::tie(b->page, b->hash);
  });
  if (pages->size() > max) pages->resize(max);
}

std::vector<Event> PageIndex::take(std::span<const engine::PageChange> changes) {
  std::vector<Event> events;
  for (const engine::PageChange& each : changes) {
    if (each.is_salted) continue;
    const uint64_t hash = hash_of(each.name);
    if (!each.is_known) {
      if (pages_.erase(hash) > 0) add_removed(hash, &events);
      continue;
    }
    SharedPage& page = pages_[hash];
    if (page != nullptr) continue;
    page = page_of(each);
    add_stored(*page, &events);
  }
  return events;
}

std::vector<SharedPage> PageIndex::pages() const {
  std::vector<SharedPage> all;
  all.reserve(pages_.size());
  for (const auto& [hash, page] : pages_) all.push_back(page);
  return all;
}

}  // namespace wideep::kv_events
