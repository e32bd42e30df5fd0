// SPDX-License-Identifier: Apache-2.0
#include "run/page_places.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace wideep::run {

void PagePlaces::add(int owner, const PagesChanged& changed) {
  if (changed.is_cleared) clear(owner);
  for (const engine::PageChange& each : changed.changes) {
    if (!each.is_known) {
      remove(owner, each.name);
      continue;
    }
    std::vector<int>& owners = owners_[each.name];
    if (std::ranges::find(owners, owner) == owners.end()) owners.push_back(owner);
  }
}

void PagePlaces::remove(int owner, const store::Name& name) {
  const auto found = owners_.find(name);
  if (found == owners_.end()) return;
  std::erase(found->second, owner);
  if (found->second.empty()) owners_.erase(found);
}

void PagePlaces::clear(int owner) {
  for (auto next = owners_.begin(); next != owners_.end();) {
    std::erase(next->second, owner);
    next = next->second.empty() ? owners_.erase(next) : std::next(next);
  }
}

// Names are computed only as far as some owner knows all before.
std::map<int, int> PagePlaces::known_pages(std::span<const int32_t> prompt,
                                           std::string_view salt) const {
  std::map<int, int> known;
  if (owners_.empty()) return known;
  store::PageWalk walk(record_class_, salt, store::reusable(prompt));
  bool goes_on = true;
  while (const auto page = goes_on ? walk.next() : std::nullopt) {
    const auto found = owners_.find(page->name);
    if (found == owners_.end()) break;
    goes_on = false;
    for (const int owner : found->second) {
      int& pages = known[owner];
      if (pages != static_cast<int>(page->page)) continue;
      ++pages;
      goes_on = true;
    }
  }
  return known;
}

PagePlaces::Choice PagePlaces::choose(const std::map<int, int64_t>& tokens_of_owner,
                                      std::span<const int32_t> prompt,
                                      std::string_view salt) const {
  const std::map<int, int> known = known_pages(prompt, salt);
  const auto known_tokens = [&](int owner) {
    const auto found = known.find(owner);
    const int pages = found == known.end() ? 0 : found->second;
    return pages * static_cast<int64_t>(store::kPageTokens);
  };
  const auto best = std::ranges::min_element(tokens_of_owner, {}, [&](const auto& owner) {
    const int64_t has = known_tokens(owner.first);
    return std::tuple(owner.second - has, -has);
  });
  return {.owner = best->first, .known_tokens = known_tokens(best->first)};
}

}  // namespace wideep::run
