// SPDX-License-Identifier: Apache-2.0
//
// The pages of the KV cache and an index of their contents. A full page is indexed by its tokens
// and all pages before it. A request with the same prefix shares the page instead of computing it
// again (TensorRT-LLM's kv_cache_config.enable_block_reuse).
//
//   root ── page "You are a" ── page "helpful as…" ── page "Question 1"
//                                               └──── page "Question 2"
//
// A page has users: the sequences that hold it. When the last user releases an indexed ("known")
// page, the page is kept. When a new page is needed and none is free, the least recently used kept
// page is evicted. Contents are compared token by token, never by a hash alone.
//
// Ranks that share sequences, and the stages of a pipeline, each have a PageCache and must stay
// equal without communication. So the state depends only on the order of the calls.
//
// Not thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/page_pool.h"

namespace wideep::engine {

class PageCache {
 public:
  using PageId = int32_t;
  // Identifies a known page and all tokens up to its end. Values are never reused.
  using Prefix = uint64_t;
  static constexpr Prefix kRoot = 0;

  // memories: [ranks that share sequences] where each rank's max_pages pages lie; a null pointer:
  // memory of this process alone, as PagePool allocates it.
  PageCache(size_t page_bytes, int max_pages, const std::vector<std::byte*>& memories);

  // ---- pages in use ----

  // A page in the memory of `rank`, with one user. REQUIRES: available(rank) > 0.
  PageId take(int rank);
  // Adds a user.
  void share(PageId page);
  // Removes a user. A known page without users is kept, another one is free.
  void release(PageId page);
  std::byte* bytes(PageId page) const { return pages_[page].bytes; }
  int rank(PageId page) const { return pages_[page].rank; }
  int users(PageId page) const { return pages_[page].users; }

  // ---- known pages ----

  // The page that holds these tokens after the prefix `before`. role: separates contents that have
  // the same tokens but different keys and values (SequencePages).
  std::optional<PageId> find(Prefix before, std::span<const int32_t> tokens, int role) const;
  // Adds the page to the index under this content; returns the prefix that ends with it. If another
  // page has the same content, that one stays in the index and its prefix is returned.
  Prefix enter(PageId page, Prefix before, std::span<const int32_t> tokens, int role);
  Prefix prefix(PageId page) const { return pages_[page].prefix; }
  // Removes the page from the index, so that it is not kept. No effect if it is not known.
  // REQUIRES: it has users.
  void forget(PageId page);
  // Is called with the prefix of every page that leaves the index: whatever belongs to the prefix
  // is of no more use.
  void on_forget(std::function<void(Prefix)> on_forget) { on_forget_ = std::move(on_forget); }

  // ---- counts ----

  int max_pages() const { return max_pages_; }                        // per rank
  int used(int rank) const { return used_[rank]; }                    // pages with users
  int available(int rank) const { return max_pages_ - used_[rank]; }  // free or kept
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
    const Content* content = nullptr;  // its key in known_, if it is known
    std::list<PageId>::iterator kept;  // its place in kept_, if it is known and has no users
  };
  static Content content_of(Prefix before, std::span<const int32_t> tokens, int role);
  PageId evict(int rank);

  int max_pages_;
  // Per rank:
  std::vector<PagePool> pools_;
  std::vector<int> used_;                  // number of pages with users
  std::vector<std::vector<PageId>> free_;  // taken from the pool before, now neither used nor kept
  std::vector<std::list<PageId>> kept_;    // the least recently used first
  std::vector<Page> pages_;
  Known known_;
  std::function<void(Prefix)> on_forget_;
  Prefix last_prefix_ = kRoot;
  int64_t num_evicted_ = 0;
};

}  // namespace wideep::engine
