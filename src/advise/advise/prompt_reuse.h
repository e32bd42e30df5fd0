// SPDX-License-Identifier: Apache-2.0
//
// What room for pages of prompts is worth on a dataset: of prompts in the order in which they come,
// how many tokens a cache of any size would have.
//
//   PromptReuse reuse;
//   for (…) reuse.add(prompt);
//   reuse.found_tokens(pages)     with the least recently used pages evicted
//
// One pass answers for all sizes: a page is found by every cache that has room for the different
// pages that were used since its last use (stack distance: Mattson, Gecsei, Slutz, Traiger,
// Evaluation techniques for storage hierarchies, 1970). The caches of wideep weigh seconds per byte
// instead, so they find about as much or more.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/record.h"

namespace wideep::advise {

class PromptReuse {
 public:
  // Requests with one prompt after the other. As the engine does, without the page of the last token.
  void add(std::span<const int32_t> prompt);

  int64_t tokens() const { return tokens_; }  // of all prompts
  // Tokens of them that a cache of so many pages has.
  int64_t found_tokens(int64_t pages) const;
  // With more pages than that nothing more is found.
  int64_t num_pages() const { return static_cast<int64_t>(last_use_.size()); }

 private:
  void use(const store::Name& page);
  int64_t used_since(size_t time) const;
  void mark(size_t time, int64_t change);

  int64_t tokens_ = 0;
  std::unordered_map<store::Name, size_t, store::NameHash> last_use_;  // by page: its time
  std::vector<int64_t> sums_{0};   // Fenwick tree over times: 1 where a page was used last
  std::vector<int64_t> found_at_;  // by distance − 1: pages found with exactly so much room
};

// Of a dataset, so many bytes of which a page takes.
struct ReuseRow {
  uint64_t bytes = 0;
  double share = 0.0;    // of the prompts' tokens
  double seconds = 0.0;  // of computing them
};
// Room for 1/4 GB, 1/2 GB, … up to what holds all. seconds_per_token: of computing; 0: not known.
std::vector<ReuseRow> reuse_rows(const PromptReuse& reuse, uint64_t page_bytes,
                                 double seconds_per_token);
// As lines of a report.
std::string reuse_text(const std::vector<ReuseRow>& rows);

}  // namespace wideep::advise
