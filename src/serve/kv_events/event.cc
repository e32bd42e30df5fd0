// SPDX-License-Identifier: Apache-2.0
//
// Fields that are nil are written, too: vLLM's own structures have no defaults for these, and
// readers that know fewer pass over the rest. What vLLM has added later has defaults and is left
// out.
#include "kv_events/event.h"

#include "kv_events/message_pack.h"

namespace wideep::kv_events {
namespace {

const char* type_of(Event::Kind kind) {
  switch (kind) {
    case Event::kStored:
      return "BlockStored";
    case Event::kRemoved:
      return "BlockRemoved";
    case Event::kCleared:
      return "AllBlocksCleared";
  }
  return "";
}

template <typename T>
void write_numbers(const std::vector<T>& numbers, MessagePack& pack) {
  pack.array(numbers.size());
  for (const T each : numbers) pack.unsigned_integer(static_cast<uint64_t>(each));
}

void write_event(const Event& event, EventForm form, MessagePack& pack) {
  constexpr size_t kFields[] = {8, 3, 1};  // [kinds]
  const auto begin_field = [&](const char* name) {
    if (form == EventForm::kMap) pack.text(name);
  };
  const auto write_nil = [&](const char* name) {
    begin_field(name);
    pack.nil();
  };
  if (form == EventForm::kMap) {
    pack.map(kFields[event.kind]);
  } else {
    pack.array(kFields[event.kind]);
  }
  begin_field("type");
  pack.text(type_of(event.kind));
  if (event.kind == Event::kCleared) return;
  begin_field("block_hashes");
  write_numbers(event.hashes, pack);
  if (event.kind == Event::kRemoved) return write_nil("medium");
  begin_field("parent_block_hash");
  if (event.parent) {
    pack.unsigned_integer(*event.parent);
  } else {
    pack.nil();
  }
  begin_field("token_ids");
  write_numbers(event.tokens, pack);
  begin_field("block_size");
  pack.unsigned_integer(store::kPageTokens);
  for (const char* each : {"lora_id", "medium", "lora_name"}) write_nil(each);
}

nlohmann::ordered_json json_of_event(const Event& event) {
  nlohmann::ordered_json json = {{"type", type_of(event.kind)}};
  if (event.kind == Event::kCleared) return json;
  json["block_hashes"] = event.hashes;
  if (event.kind == Event::kRemoved) return json;
  json["parent_block_hash"] = nullptr;
  if (event.parent) json["parent_block_hash"] = *event.parent;
  json["token_ids"] = event.tokens;
  json["block_size"] = store::kPageTokens;
  return json;
}

}  // namespace

uint64_t hash_of(const store::Name& name) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) value = value << 8 | name.bytes[i];
  return value;
}

size_t Batch::num_pages() const {
  size_t sum = 0;
  for (const Event& each : events) sum += each.hashes.size();
  return sum;
}

std::string payload_of(const Batch& batch, EventForm form) {
  MessagePack pack;
  pack.array(3);
  pack.real(batch.seconds);
  pack.array(batch.events.size());
  for (const Event& each : batch.events) write_event(each, form, pack);
  pack.unsigned_integer(static_cast<uint64_t>(batch.rank));
  return pack.take();
}

std::string sequence_bytes(uint64_t sequence) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(sequence >> shift & 0xff);
  return bytes;
}

nlohmann::ordered_json json_of(const Batch& batch) {
  auto events = nlohmann::ordered_json::array();
  for (const Event& each : batch.events) events.push_back(json_of_event(each));
  return {{"sequence", batch.sequence},
          {"ts", batch.seconds},
          {"data_parallel_rank", batch.rank},
          {"events", std::move(events)}};
}

}  // namespace wideep::kv_events
