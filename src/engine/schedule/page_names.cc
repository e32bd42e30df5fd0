// SPDX-License-Identifier: Apache-2.0
//
// The named pages are trees: each knows the page before it and those that follow. forget() takes a
// page and all below it, so every page is visited once for each time that it was entered.
#include "schedule/page_names.h"

#include <algorithm>

namespace wideep::engine {

void PageNames::enter(PageId page, Prefix prefix, const PageContent& content) {
  if (record_class_.empty()) return;
  Entry entry{.prefix = prefix, .following = {}};
  store::Head& head = entry.named.head;
  entry.named.role = content.role;
  if (content.before == 0) {
    head.before = store::root_name(record_class_, content.salt);
    entry.named.is_salted = !content.salt.empty();
  } else {
    const auto before = of_prefix_.find(content.before);
    if (before == of_prefix_.end()) return;
    entry.before = before->second;
    Entry& parent = entries_.at(entry.before);
    parent.following.insert(page);
    head.before = parent.named.head.name;
    head.page = parent.named.head.page + 1;
    entry.named.is_salted = parent.named.is_salted;
  }
  head.name = store::page_name(head.before, content.role, content.tokens);
  head.tokens = content.tokens;
  of_prefix_.emplace(prefix, page);
  entries_.emplace(page, std::move(entry));
}

void PageNames::forget(PageId page) {
  const auto found = entries_.find(page);
  if (found == entries_.end()) return;
  if (found->second.before >= 0) entries_.at(found->second.before).following.erase(page);
  std::vector<PageId> gone = {page};
  for (size_t i = 0; i < gone.size(); ++i) {
    const std::set<PageId>& following = entries_.at(gone[i]).following;
    gone.insert(gone.end(), following.begin(), following.end());
  }
  // The last ones first, so that what is told is a tree at any time.
  for (auto each = gone.rbegin(); each != gone.rend(); ++each) drop(*each);
}

void PageNames::drop(PageId page) {
  const auto found = entries_.find(page);
  const Entry& entry = found->second;
  if (entry.is_told) {
    const store::Head& head = entry.named.head;
    changes_.push_back({.is_known = false,
                        .is_salted = entry.named.is_salted,
                        .page = static_cast<int32_t>(head.page),
                        .name = head.name,
                        .before = {}});
  }
  of_prefix_.erase(entry.prefix);
  entries_.erase(found);
}

const PageNames::Named* PageNames::find(PageId page) const {
  const auto found = entries_.find(page);
  return found == entries_.end() ? nullptr : &found->second.named;
}

const PageNames::Named* PageNames::tell(PageId page) {
  const auto found = entries_.find(page);
  if (found == entries_.end() || std::exchange(found->second.is_told, true)) return nullptr;
  add_change(found->second.named);
  return &found->second.named;
}

void PageNames::add_change(const Named& named) {
  changes_.push_back({.is_salted = named.is_salted,
                      .page = static_cast<int32_t>(named.head.page),
                      .name = named.head.name,
                      .before = named.head.before,
                      .tokens = named.head.tokens});
}

void PageNames::tell_again() {
  std::vector<const Named*> told;
  for (const auto& [page, entry] : entries_) {
    if (entry.is_told) told.push_back(&entry.named);
  }
  // Each behind the one before it.
  std::ranges::sort(told, {}, [](const Named* named) { return named->head.page; });
  changes_.clear();
  for (const Named* named : told) add_change(*named);
}

}  // namespace wideep::engine
