// SPDX-License-Identifier: Apache-2.0
//
// The pages of the KV cache, and which of them hold what: a page that is full is known by its
// tokens and by all pages before it, so that a request whose tokens begin alike shares it instead
// of computing it again (TensorRT-LLM's kv_cache_config.enable_block_reuse).
//
//   root ── page "You are a" ── page "helpful as…" ── page "Question 1"
//                                               └──── page "Question 2"
//
// A page is used by the sequences that have it. When the last of them ends, a known page is kept,
// and is the last to go of all that are kept: pages that nobody uses make room for new ones, the
// least recently used first. Contents are compared token by token, never by a hash alone.
//
// Ranks that share sequences have pages in each one's memory; all keep the same books. So do the
// stages of a pipeline. All that happens here follows from the order of the calls.
//
// Not thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/page_pool.h"

namespace wideep::engine {

class PageCache {
 public:
  using PageId = int32_t;
  // A known page, and with it all tokens up to its end. Never the same again for another content.
  using Prefix = uint64_t;
  static constexpr Prefix kRoot = 0;

  // memories: of each rank that shares sequences, max_pages each; one null: this rank's own.
  PageCache(size_t page_bytes, int max_pages, const std::vector<std::byte*>& memories);

  // ---- pages in use ----

  // Of that rank's memory, with one user. REQUIRES: available(rank) > 0.
  PageId take(int rank);
  // Has one user more.
  void share(PageId page);
  // Has one user fewer. Known pages are kept when they have none.
  void release(PageId page);
  std::byte* bytes(PageId page) const { return pages_[page].bytes; }
  int rank(PageId page) const { return pages_[page].rank; }

  // ---- known pages ----

  // role: of contents whose keys and values differ although their tokens are the same.
  std::optional<PageId> find(Prefix before, std::span<const int32_t> tokens, int role) const;
  // The page's content, from now on; returns the prefix that ends with it. Where another page is
  // known by it already, that one stays and is returned.
  Prefix enter(PageId page, Prefix before, std::span<const int32_t> tokens, int role);
  Prefix prefix(PageId page) const { return pages_[page].prefix; }
  // It is not worth keeping: nobody else will find it. REQUIRES: it has users.
  void forget(PageId page);

  // ---- counts ----

  int max_pages() const { return max_pages_; }                        // of each rank
  int used(int rank) const { return used_[rank]; }                    // by sequences
  int available(int rank) const { return max_pages_ - used_[rank]; }  // free or only kept
  int kept(int rank) const { return static_cast<int>(kept_[rank].size()); }
  int64_t num_evicted() const { return num_evicted_; }  // since the start

 private:
  struct Content {
    Prefix before = kRoot;
    int32_t role = 0;
    std::array<int32_t, kernels::kPageTokens> tokens;
    bool operator==(const Content&) const = default;
  };
  struct ContentHash {
    size_t operator()(const Content& content) const;
  };
  using Known = std::unordered_map<Content, PageId, ContentHash>;
  struct Page {
    std::byte* bytes = nullptr;
    int rank = 0;
    int users = 0;
    Prefix prefix = kRoot;             // kRoot: not known
    const Content* content = nullptr;  // where it is known
    std::list<PageId>::iterator kept;  // where it is kept: known, and without users
  };
  static Content content_of(Prefix before, std::span<const int32_t> tokens, int role);
  PageId evict(int rank);

  int max_pages_;
  std::vector<PagePool> pools_;            // of each rank
  std::vector<int> used_;                  // likewise
  std::vector<std::vector<PageId>> free_;  // likewise: taken once, neither used nor kept
  std::vector<std::list<PageId>> kept_;    // likewise: the least recently used first
  std::vector<Page> pages_;
  Known known_;
  Prefix last_prefix_ = kRoot;
  int64_t num_evicted_ = 0;
};

}  // namespace wideep::engine
