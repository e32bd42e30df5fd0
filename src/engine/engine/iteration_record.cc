// SPDX-License-Identifier: Apache-2.0
#include "engine/iteration_record.h"

#include "schedule/wire.h"

namespace wideep::engine {

QueueRecord& QueueRecord::operator+=(const QueueRecord& other) {
  running += other.running;
  waiting += other.waiting;
  scheduled += other.scheduled;
  prompts += other.prompts;
  cache_pages += other.cache_pages;
  kept_pages += other.kept_pages;
  max_pages += other.max_pages;
  reused_tokens += other.reused_tokens;
  evicted_pages += other.evicted_pages;
  pauses += other.pauses;
  return *this;
}

namespace {

// The fields in the order of their bytes: one list for both ways.
template <typename Wire, typename AnyRecord>
void transfer_fields(Wire& wire, AnyRecord& record) {
  wire.fields(record.iteration, record.begin_ns, record.end_ns, record.prompt_tokens,
              record.generated_tokens, record.queue, record.verified, record.forecast,
              record.draft_bytes, record.gave_up_drafts, record.tail_cpu_ns, record.agree_cpu_ns,
              record.wall_ns, record.schedule_ns, record.records_experts);
}

template <typename Wire, typename AnyLayer>
void transfer_layer(Wire& wire, AnyLayer& layer) {
  wire.fields(layer.other_cpu_ns, layer.experts_cpu_ns, layer.shared_cpu_ns, layer.exchange_cpu_ns,
              layer.sent, layer.counts, layer.slot_counts, layer.initial_imbalance);
}

}  // namespace

std::string encode(const IterationRecord& record) {
  WireWriter writer;
  transfer_fields(writer, record);
  writer.put(static_cast<uint32_t>(record.layers.size()));
  for (const LayerRecord& layer : record.layers) transfer_layer(writer, layer);
  return writer.take();
}

IterationRecord decode_iteration(std::string_view bytes) {
  WireReader reader(bytes);
  IterationRecord record;
  transfer_fields(reader, record);
  record.layers.resize(reader.get<uint32_t>());
  for (LayerRecord& layer : record.layers) transfer_layer(reader, layer);
  return record;
}

}  // namespace wideep::engine
