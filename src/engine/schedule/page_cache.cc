// SPDX-License-Identifier: Apache-2.0
//
// A page is free, in use, or kept: known and without users, in a list by the time of its release.
// The index maps a content (the prefix before, the role, the tokens) to a page. Prefixes are
// numbers that are never used again, so a page whose predecessor was evicted cannot be found by
// mistake, and evict() need not walk through what follows it.
#include "schedule/page_cache.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/content_hash.h"

namespace wideep::engine {

namespace {

PageContent content_of(PageCache::Prefix before, std::span<const int32_t> tokens, int role,
                       std::string_view salt) {
  WIDEEP_CHECK_EQ(tokens.size(), static_cast<size_t>(kernels::kPageTokens));
  PageContent content{.before = before, .role = role};
  std::copy(tokens.begin(), tokens.end(), content.tokens.begin());
  if (before == PageCache::kRoot) content.salt = salt;
  return content;
}

}  // namespace

static_assert(kernels::kPageTokens == store::kPageTokens);

PageCache::PageCache(size_t page_bytes, int max_pages, const std::vector<std::byte*>& memories,
                     std::string record_class)
    : max_pages_(max_pages),
      used_(memories.size()),
      free_(memories.size()),
      kept_(memories.size()),
      names_(std::move(record_class)) {
  for (std::byte* memory : memories) pools_.emplace_back(page_bytes, max_pages, memory);
}

size_t PageCache::ContentHash::operator()(const PageContent& content) const {
  const uint64_t tokens = base::content_hash(
      reinterpret_cast<const std::byte*>(content.tokens.data()), sizeof(content.tokens));
  const uint64_t salt =
      content.salt.empty()
          ? 0
          : base::content_hash(reinterpret_cast<const std::byte*>(content.salt.data()),
                               content.salt.size());
  const std::array<uint64_t, 4> all = {content.before, static_cast<uint64_t>(content.role), tokens,
                                       salt};
  return base::content_hash(reinterpret_cast<const std::byte*>(all.data()), sizeof(all));
}

// In order of preference: a free page, new memory, the least recently used kept page. So known
// contents stay as long as possible.
PageCache::PageId PageCache::take(int rank) {
  WIDEEP_CHECK_GT(available(rank), 0);
  PageId page = 0;
  if (!free_[rank].empty()) {
    page = free_[rank].back();
    free_[rank].pop_back();
  } else if (pools_[rank].num_pages() < max_pages_) {
    page = static_cast<PageId>(pages_.size());
    pages_.push_back({.bytes = pools_[rank].take(), .rank = rank, .kept = {}});
    versions_.emplace_back();
  } else {
    page = evict(rank);
  }
  versions_[page].change();
  pages_[page].users = 1;
  ++used_[rank];
  return page;
}

// Pages that follow the evicted one stay in the index but cannot be found any more, because its
// prefix is never used again. They are evicted in their turn: sequences release their pages from
// the last to the first, so the evicted page is usually the end of a prefix.
PageCache::PageId PageCache::evict(int rank) {
  const PageId page = kept_[rank].front();
  kept_[rank].pop_front();
  forget(page);
  ++num_evicted_;
  return page;
}

void PageCache::forget(PageId id) {
  Page& page = pages_[id];
  if (page.prefix == kRoot) return;
  known_.erase(known_.find(*page.content));
  const Prefix forgotten = std::exchange(page.prefix, kRoot);
  names_.forget(id);
  if (on_forget_) on_forget_(forgotten);
}

void PageCache::share(PageId id) {
  Page& page = pages_[id];
  // A kept page gets its first user again and leaves the list of kept pages.
  if (page.users++ > 0) return;
  kept_[page.rank].erase(page.kept);
  ++used_[page.rank];
}

void PageCache::release(PageId id) {
  Page& page = pages_[id];
  WIDEEP_CHECK_GT(page.users, 0);
  if (--page.users > 0) return;
  --used_[page.rank];
  if (page.prefix == kRoot) {
    free_[page.rank].push_back(id);
  } else {
    page.kept = kept_[page.rank].insert(kept_[page.rank].end(), id);
  }
}

std::optional<PageCache::PageId> PageCache::find(Prefix before, std::span<const int32_t> tokens,
                                                 int role, std::string_view salt) const {
  const auto found = known_.find(content_of(before, tokens, role, salt));
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

PageCache::Prefix PageCache::enter(PageId id, Prefix before, std::span<const int32_t> tokens,
                                   int role, std::string_view salt) {
  // Two requests may compute the same page in the same iteration; the first to enter it wins.
  const auto [known, is_new] = known_.emplace(content_of(before, tokens, role, salt), id);
  if (!is_new) return pages_[known->second].prefix;
  Page& page = pages_[id];
  WIDEEP_CHECK_EQ(page.prefix, kRoot);
  page.content = &known->first;  // stays valid: unordered_map does not move its nodes
  page.prefix = ++last_prefix_;
  names_.enter(id, page.prefix, known->first);
  return page.prefix;
}

}  // namespace wideep::engine
