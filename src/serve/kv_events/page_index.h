// SPDX-License-Identifier: Apache-2.0
//
// The pages that a rank knows, as far as everybody may know them: what a reader that comes late is
// told. It has what the rank's cache has, so that the cache's pages bound it: about 400 bytes each.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv_events/event.h"
#include "schedule/page_changes.h"

namespace wideep::kv_events {

struct KnownPage {
  uint64_t hash = 0;
  std::optional<uint64_t> parent;  // nullopt: it begins a sequence
  int32_t page = 0;                // its number in the sequence
  std::array<int32_t, store::kPageTokens> tokens = {};
};
using SharedPage = std::shared_ptr<const KnownPage>;

// As few events as can say that these pages are known now: those that follow each other are one.
std::vector<Event> stored_events(std::span<const SharedPage> pages);

// Each page after its parent: those nearer to the beginnings of sequences come first. Keeps the
// first `max`.
void sort_parents_first(std::vector<SharedPage>* pages, size_t max = SIZE_MAX);

class PageIndex {
 public:
  // Returns what has changed for readers, in order. A salted page is no page: who knows its hash
  // could ask whether somebody has its text. Nothing is said twice.
  std::vector<Event> take(std::span<const engine::PageChange> changes);
  void clear() { pages_.clear(); }

  size_t size() const { return pages_.size(); }
  std::vector<SharedPage> pages() const;  // in any order

 private:
  std::unordered_map<uint64_t, SharedPage> pages_;  // by hash
};

}  // namespace wideep::kv_events
