// SPDX-License-Identifier: Apache-2.0
//
// KV events: what readers are told of the pages that ranks know, in vLLM's form, which Dynamo
// and llm-d read (docs/kv_events.md).
//
// A batch is one message. Its payload is MessagePack:
//
//   batch     [seconds since 1970, [event, …], data_parallel_rank]
//   event     {"type": "BlockStored", "block_hashes": [hash, …],
//              "parent_block_hash": hash or nil, "token_ids": [token, …], "block_size": 64,
//              "lora_id": nil, "medium": nil, "lora_name": nil}
//             {"type": "BlockRemoved", "block_hashes": [hash, …], "medium": nil}
//             {"type": "AllBlocksCleared"}
//
// That is vLLM's form since 0.24. Before, an event was an array of the same values in that order.
// A hash is the first 8 bytes of the page's name as a big-endian number without a sign. A reader
// takes the medium nil for the memory in which the engine computes, which is the case.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "store/record.h"

namespace wideep::kv_events {

// How events are written: with the names of their fields, or without, for older readers.
enum class EventForm : uint8_t { kMap, kArray };

uint64_t hash_of(const store::Name& name);

struct Event {
  enum Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = kStored;
  std::vector<uint64_t> hashes = {};    // of pages that follow each other, if they are stored
  std::optional<uint64_t> parent = {};  // of the first stored one; nullopt: it begins a sequence
  std::vector<int32_t> tokens = {};     // [hashes × store::kPageTokens] of stored ones
};

struct Batch {
  uint64_t sequence = 0;
  double seconds = 0.0;  // since 1970
  int rank = 0;          // among those that have requests of their own, from 0
  std::vector<Event> events;

  size_t num_pages() const;
};
using SharedBatch = std::shared_ptr<const Batch>;

std::string payload_of(const Batch& batch, EventForm form);
// The sequence number as a message has it: 8 bytes, big-endian.
std::string sequence_bytes(uint64_t sequence);
// {"sequence": …, "ts": …, "data_parallel_rank": …, "events": [{"type": "BlockStored", …}, …]}
nlohmann::ordered_json json_of(const Batch& batch);

}  // namespace wideep::kv_events
