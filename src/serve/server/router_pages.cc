// SPDX-License-Identifier: Apache-2.0
#include "server/router_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "formats/json_parse.h"

namespace wideep::server {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxRankNumber = 1 << 16;
constexpr uint64_t kMaxBlockSize = 1 << 16;

// The member, or null.
const json& member(const json& object, const char* name) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

Status unexpected(const char* place, const char* expected, const json& found) {
  return invalid_input(
      fmt::format("{}: expected {}, found {}", place, expected, formats::describe(found)));
}

Result<uint64_t> unsigned_of(const json& object, const char* name, uint64_t max = UINT64_MAX) {
  const json& value = member(object, name);
  if (value.is_number_unsigned() && value.get<uint64_t>() <= max) return value.get<uint64_t>();
  return unexpected(name, "a whole number", value);
}

// visit(uint64_t) returns whether to go on.
template <typename Visit>
Status for_each_hash(const json& hashes, Visit visit) {
  if (!hashes.is_array()) return unexpected("block_hashes", "a list", hashes);
  for (const json& each : hashes) {
    if (!each.is_number_unsigned()) return unexpected("block_hashes", "whole numbers", each);
    WIDEEP_TRY(visit(each.get<uint64_t>()));
  }
  return {};
}

}  // namespace

Result<PageNames> read_page_names(std::string_view reply) {
  WIDEEP_TRY_ASSIGN(const json read, formats::parse_json(reply, "/prompt_tokens"));
  const json &prompts = member(read, "prompts"), &hashes = member(read, "page_hashes");
  if (!prompts.is_array()) return unexpected("prompts", "a list", prompts);
  if (!hashes.is_array() || hashes.size() != prompts.size()) {
    return unexpected("page_hashes", "a list for each prompt", hashes);
  }
  PageNames names;
  for (const json& each : prompts) {
    if (!each.is_array()) return unexpected("prompts", "lists of tokens", each);
    names.num_tokens += each.size();
  }
  for (const json& each : hashes) {
    std::vector<uint64_t>& prompt = names.prompts.emplace_back();
    WIDEEP_TRY(for_each_hash(each, [&](uint64_t hash) {
      prompt.push_back(hash);
      return Status();
    }));
  }
  return names;
}

void ReplicaPages::clear() {
  is_known_ = false;
  num_pages_ = 0;
  ranks_.clear();
}

Result<ReplicaPages::Position> ReplicaPages::fail(const Status& status) {
  clear();
  return status;
}

Result<ReplicaPages::Position> ReplicaPages::take_snapshot(std::string_view reply) {
  clear();
  WIDEEP_TRY_ASSIGN(const json read, formats::parse_json(reply, "/v1/kv_events/snapshot"));
  Position position;
  WIDEEP_TRY_ASSIGN(position.sequence, unsigned_of(read, "sequence"));
  WIDEEP_TRY_ASSIGN(block_size_, unsigned_of(read, "block_size", kMaxBlockSize));
  const json& ranks = member(read, "ranks");
  if (!ranks.is_array()) return unexpected("ranks", "a list", ranks);
  for (const json& each : ranks) {
    if (const Status added = add_rank(each); !added.ok()) return fail(added);
  }
  is_known_ = true;
  position.num_pages = num_pages_;
  return position;
}

Status ReplicaPages::add_rank(const json& rank) {
  WIDEEP_TRY_ASSIGN(const uint64_t number, unsigned_of(rank, "data_parallel_rank", kMaxRankNumber));
  const json& blocks = member(rank, "blocks");
  if (!blocks.is_array()) return unexpected("blocks", "a list", blocks);
  if (num_pages_ + blocks.size() > kMaxPages) {
    return invalid_input(fmt::format("blocks: expected {} of all ranks at most", kMaxPages));
  }
  Pages& pages = ranks_[static_cast<int64_t>(number)];
  pages.reserve(blocks.size());
  for (const json& each : blocks) {
    WIDEEP_TRY_ASSIGN(const uint64_t hash, unsigned_of(each, "hash"));
    num_pages_ += pages.insert(hash).second ? 1 : 0;
  }
  return {};
}

Result<ReplicaPages::Position> ReplicaPages::take_events(std::string_view reply,
                                                         const Position& after) {
  const auto read = formats::parse_json(reply, "/v1/kv_events");
  if (!read.ok()) return fail(read.status());
  const auto last = unsigned_of(*read, "sequence");
  if (!last.ok()) return fail(last.status());
  if (!is_known_ || *last < after.sequence) {
    return fail(
        invalid_input(fmt::format("events up to {} do not follow {}", *last, after.sequence)));
  }
  const json& batches = member(*read, "batches");
  if (!batches.is_array()) return fail(unexpected("batches", "a list", batches));
  for (const json& each : batches) {
    const auto sequence = unsigned_of(each, "sequence");
    if (!sequence.ok()) return fail(sequence.status());
    if (*sequence <= after.sequence) continue;
    if (const Status applied = apply(each); !applied.ok()) return fail(applied);
  }
  return Position{.sequence = *last, .num_pages = num_pages_};
}

// Events of kinds that are not known here say nothing of pages.
Status ReplicaPages::apply(const json& batch) {
  WIDEEP_TRY_ASSIGN(const uint64_t rank, unsigned_of(batch, "data_parallel_rank", kMaxRankNumber));
  const json& events = member(batch, "events");
  if (!events.is_array()) return unexpected("events", "a list", events);
  Pages& pages = ranks_[static_cast<int64_t>(rank)];
  for (const json& each : events) {
    const json& type = member(each, "type");
    if (type == "BlockStored") {
      WIDEEP_TRY(store(pages, member(each, "block_hashes")));
    } else if (type == "BlockRemoved") {
      WIDEEP_TRY(remove(pages, member(each, "block_hashes")));
    } else if (type == "AllBlocksCleared") {
      num_pages_ -= pages.size();
      pages.clear();
    }
  }
  return {};
}

Status ReplicaPages::store(Pages& pages, const json& hashes) {
  return for_each_hash(hashes, [&](uint64_t hash) -> Status {
    num_pages_ += pages.insert(hash).second ? 1 : 0;
    if (num_pages_ <= kMaxPages) return {};
    return invalid_input(fmt::format("events: expected {} pages at most", kMaxPages));
  });
}

Status ReplicaPages::remove(Pages& pages, const json& hashes) {
  return for_each_hash(hashes, [&](uint64_t hash) {
    num_pages_ -= pages.erase(hash);
    return Status();
  });
}

uint64_t ReplicaPages::tokens_known(const PageNames& names) const {
  uint64_t best = 0;
  for (const auto& [rank, pages] : ranks_) {
    uint64_t known = 0;
    for (const auto& prompt : names.prompts) {
      for (size_t i = 0; i < prompt.size() && pages.contains(prompt[i]); ++i) known += block_size_;
    }
    best = std::max(best, known);
  }
  return std::min(best, names.num_tokens);
}

}  // namespace wideep::server
