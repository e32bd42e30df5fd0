// SPDX-License-Identifier: Apache-2.0
#include "advise/prompt_reuse.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::advise {

using store::kPageTokens;

// The last page first: of the pages of a prompt the first one is used last, so that a cache never
// has a page without those before it.
void PromptReuse::add(std::span<const int32_t> prompt) {
  tokens_ += static_cast<int64_t>(prompt.size());
  std::vector<store::Name> pages;
  store::PageWalk walk("", "", store::reusable(prompt));
  while (const auto page = walk.next()) pages.push_back(page->name);
  // Found or not: before any of them is used.
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto last = last_use_.find(pages[i]);
    if (last == last_use_.end()) break;
    const auto distance = static_cast<size_t>(used_since(last->second));
    if (found_at_.size() < distance) found_at_.resize(distance);
    ++found_at_[distance - 1];
  }
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) use(*page);
}

void PromptReuse::use(const store::Name& page) {
  const size_t now = sums_.size();
  // A new last node of the tree sums up those that it covers.
  int64_t sum = 1;
  for (size_t covered = 1; (now & covered) == 0; covered *= 2) sum += sums_[now - covered];
  sums_.push_back(sum);
  const auto [last, is_new] = last_use_.try_emplace(page, now);
  if (is_new) return;
  mark(last->second, -1);
  last->second = now;
}

// Different pages used at or after `time`.
int64_t PromptReuse::used_since(size_t time) const {
  int64_t before = 0;
  for (size_t at = time - 1; at > 0; at &= at - 1) before += sums_[at];
  return num_pages() - before;
}

void PromptReuse::mark(size_t time, int64_t change) {
  for (size_t at = time; at < sums_.size(); at += at & (~at + 1)) sums_[at] += change;
}

int64_t PromptReuse::found_tokens(int64_t pages) const {
  int64_t found = 0;
  const size_t end = std::min(found_at_.size(), static_cast<size_t>(std::max<int64_t>(pages, 0)));
  for (size_t i = 0; i < end; ++i) found += found_at_[i];
  return found * static_cast<int64_t>(kPageTokens);
}

std::vector<ReuseRow> reuse_rows(const PromptReuse& reuse, uint64_t page_bytes,
                                 double seconds_per_token) {
  constexpr uint64_t kFirst = 250'000'000;
  std::vector<ReuseRow> rows;
  const uint64_t all = static_cast<uint64_t>(reuse.num_pages()) * page_bytes;
  for (uint64_t bytes = kFirst; rows.empty() || rows.back().bytes < all; bytes *= 2) {
    const int64_t found = reuse.found_tokens(static_cast<int64_t>(bytes / page_bytes));
    rows.push_back({.bytes = std::min(bytes, std::max(all, kFirst)),
                    .share = static_cast<double>(found) /
                             static_cast<double>(std::max<int64_t>(reuse.tokens(), 1)),
                    .seconds = static_cast<double>(found) * seconds_per_token});
  }
  return rows;
}

std::string reuse_text(const std::vector<ReuseRow>& rows) {
  std::string text;
  for (const ReuseRow& row : rows) {
    const double gigabytes = static_cast<double>(row.bytes) * 1e-9;
    text += fmt::format("  {:8.2f} GB  has {:.3f} of the prompts' tokens", gigabytes, row.share);
    if (row.seconds > 0.0) {
      text += fmt::format(", saves {:.1f} s of computing them, {:.1f} s a GB", row.seconds,
                          row.seconds / gigabytes);
    }
    text += '\n';
  }
  return text;
}

}  // namespace wideep::advise
