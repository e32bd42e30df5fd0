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
// A salt separates the first page of those that use it, and so all that follow. Where pages are
// kept beyond the cache, known pages have names (schedule/page_names.h), and each page a Version,
// which says whether its bytes are still what they were.
//
// Ranks that share sequences, and the stages of a pipeline, each have a PageCache and must stay
// equal without communication. So the state depends only on the order of the calls.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/page_names.h"
#include "schedule/page_pool.h"

namespace wideep::engine {

class PageCache {
 public:
  using PageId = int32_t;
  // Identifies a known page and all tokens up to its end. Values are never reused.
  using Prefix = uint64_t;
  static constexpr Prefix kRoot = 0;

  // memories: [ranks that share sequences] where each rank's max_pages pages lie; a null pointer:
  // memory of this process alone, as PagePool allocates it. record_class: for the names of pages;
  // "": they have none.
  PageCache(size_t page_bytes, int max_pages, const std::vector<std::byte*>& memories,
            std::string record_class = {});

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
  // Changes before other contents are written. Lives as long as the cache.
  const Version& version(PageId page) const { return versions_[page]; }

  // ---- known pages ----

  // The page that holds these tokens after the prefix `before`. role: separates contents that have
  // the same tokens but different keys and values (SequencePages). salt: of a first page; that of
  // others follows from their prefix.
  std::optional<PageId> find(Prefix before, std::span<const int32_t> tokens, int role,
                             std::string_view salt = {}) const;
  // Adds the page to the index under this content; returns the prefix that ends with it. If another
  // page has the same content, that one stays in the index and its prefix is returned.
  Prefix enter(PageId page, Prefix before, std::span<const int32_t> tokens, int role,
               std::string_view salt = {});
  Prefix prefix(PageId page) const { return pages_[page].prefix; }
  // Removes the page from the index, so that it is not kept. No effect if it is not known.
  // REQUIRES: it has users.
  void forget(PageId page);
  // Is called with the prefix of every page that leaves the index: whatever belongs to the prefix
  // is of no more use.
  void on_forget(std::function<void(Prefix)> on_forget) { on_forget_ = std::move(on_forget); }

  // ---- names ----

  // Null: the page is not known, or nobody can find it, or the cache gives no names.
  const PageNames::Named* named(PageId page) const { return names_.find(page); }
  // A known page is computed. Returns its name if that is news, else null.
  const PageNames::Named* tell(PageId page) { return names_.tell(page); }
  std::vector<PageChange> take_changes() { return names_.take_changes(); }
  void tell_again() { names_.tell_again(); }

  // ---- counts ----

  int max_pages() const { return max_pages_; }                        // per rank
  int used(int rank) const { return used_[rank]; }                    // pages with users
  int available(int rank) const { return max_pages_ - used_[rank]; }  // free or kept
  int kept(int rank) const { return static_cast<int>(kept_[rank].size()); }
  int64_t num_evicted() const { return num_evicted_; }  // since the start

 private:
  struct ContentHash {
    size_t operator()(const PageContent& content) const;
  };
  using Known = std::unordered_map<PageContent, PageId, ContentHash>;
  struct Page {
    std::byte* bytes = nullptr;
    int rank = 0;
    int users = 0;
    Prefix prefix = kRoot;                 // kRoot: not known
    const PageContent* content = nullptr;  // its key in known_, if it is known
    std::list<PageId>::iterator kept;      // its place in kept_, if it is known and has no users
  };
  PageId evict(int rank);

  int max_pages_;
  // Per rank:
  std::vector<PagePool> pools_;
  std::vector<int> used_;                  // number of pages with users
  std::vector<std::vector<PageId>> free_;  // taken from the pool before, now neither used nor kept
  std::vector<std::list<PageId>> kept_;    // the least recently used first
  std::vector<Page> pages_;
  std::deque<Version> versions_;  // [pages_]; they stay where they are
  Known known_;
  PageNames names_;
  std::function<void(Prefix)> on_forget_;
  Prefix last_prefix_ = kRoot;
  int64_t num_evicted_ = 0;
};

}  // namespace wideep::engine
