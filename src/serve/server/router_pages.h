// SPDX-License-Identifier: Apache-2.0
//
// Which pages of its KV cache a replica has, as its KV events tell: a snapshot, then what changes.
//
//   GET /v1/kv_events/snapshot   {"sequence": 7, "block_size": 64, "ranks": [
//                                 {"data_parallel_rank": 0, "blocks": [
//                                  {"hash": 1, "parent": null}]}]}
//   GET /v1/kv_events?after=7    {"sequence": 9, "batches": [
//                                 {"sequence": 8, "data_parallel_rank": 0, "events": [
//                                  {"type": "BlockStored", "block_hashes": [2]}]}]}
//   POST /prompt_tokens          {"prompts": [[1, 2, …]], "page_hashes": [[1, 2]]}
//
// A hash is 64 bits over all tokens up to the page's end. Another process has no batches after an
// older one's: it answers 410.
//
// Thread safety: none; read_page_names() is a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "wideep/status.h"

namespace wideep::server {

// The pages that the prompts of a request fill.
struct PageNames {
  uint64_t num_tokens = 0;                     // of all prompts
  std::vector<std::vector<uint64_t>> prompts;  // hashes of their full pages, in order
};
// From a reply to POST /prompt_tokens. Errors (invalid input): it is none, or has no page_hashes.
Result<PageNames> read_page_names(std::string_view reply);

class ReplicaPages {
 public:
  // More pages than these are not kept: 67 M tokens with pages of 64.
  static constexpr size_t kMaxPages = size_t{1} << 20;

  // Where a replica's events stand.
  struct Position {
    uint64_t sequence = 0;
    size_t num_pages = 0;  // that it has there, of all ranks
  };
  // Replaces all. Errors (invalid input): it is none, or has more than kMaxPages pages; nothing is
  // known then.
  Result<Position> take_snapshot(std::string_view reply);
  // Adds what has changed since `after`. Errors (invalid input): it is none, does not follow, or
  // makes too many pages; nothing is known then.
  Result<Position> take_events(std::string_view reply, const Position& after);
  void clear();

  // Whether there was a snapshot, and all since.
  bool is_known() const { return is_known_; }
  size_t size() const { return num_pages_; }
  // Tokens of the prompts that one rank has the pages of, from their beginnings on.
  uint64_t tokens_known(const PageNames& names) const;

 private:
  using Pages = std::unordered_set<uint64_t>;

  Result<Position> fail(const Status& status);
  Status add_rank(const nlohmann::json& rank);
  Status apply(const nlohmann::json& batch);
  Status store(Pages& pages, const nlohmann::json& hashes);
  Status remove(Pages& pages, const nlohmann::json& hashes);

  bool is_known_ = false;
  uint64_t block_size_ = 0;  // tokens of a page
  size_t num_pages_ = 0;     // of all ranks
  std::map<int64_t, Pages> ranks_;
};

}  // namespace wideep::server
