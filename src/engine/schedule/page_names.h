// SPDX-License-Identifier: Apache-2.0
//
// The names of known pages (store/record.h), and what has changed of them. A page has a name from
// its entry into the cache's index on, as long as it can be found: when it leaves the index, those
// that follow it lose theirs too, because no sequence reaches them any more.
//
// A page enters before it is computed. It is told as known when it is (tell()), once, and once as
// gone if it was told before. So replaying the changes gives the names that can be found.
//
// Not thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "schedule/page_changes.h"

namespace wideep::engine {

// Of a known page: what it is found by.
struct PageContent {
  uint64_t before = 0;  // PageCache::Prefix
  int32_t role = 0;
  std::array<int32_t, store::kPageTokens> tokens = {};
  std::string salt = {};  // of a first page; later ones follow from it
  bool operator==(const PageContent&) const = default;
};

class PageNames {
 public:
  using PageId = int32_t;
  using Prefix = uint64_t;

  struct Named {
    store::Head head;  // without its part
    int32_t role = 0;
    bool is_salted = false;
  };

  // record_class: "": nothing gets a name.
  explicit PageNames(std::string record_class) : record_class_(std::move(record_class)) {}

  // The page is known under the prefix from now on. It has no name if it cannot be found, because
  // the page before it is gone.
  void enter(PageId page, Prefix prefix, const PageContent& content);
  // The page leaves the index. No effect if it has no name.
  void forget(PageId page);
  // Null: it has none.
  const Named* find(PageId page) const;
  // The page is computed. Returns its name if that is news, else null.
  const Named* tell(PageId page);
  // Since the last call, in order.
  std::vector<PageChange> take_changes() { return std::exchange(changes_, {}); }
  // Whoever hears of changes from now on knows of none: all that are told are changes.
  void tell_again();

 private:
  struct Entry {
    Named named;
    Prefix prefix = 0;
    PageId before = -1;          // −1: it is a first page
    std::set<PageId> following;  // named pages
    bool is_told = false;
  };
  void drop(PageId page);
  void add_change(const Named& named);

  std::string record_class_;
  std::unordered_map<PageId, Entry> entries_;
  std::unordered_map<Prefix, PageId> of_prefix_;
  std::vector<PageChange> changes_;
};

}  // namespace wideep::engine
