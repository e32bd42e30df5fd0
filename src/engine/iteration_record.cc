// SPDX-License-Identifier: Apache-2.0
#include "engine/iteration_record.h"

#include "engine/wire.h"

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

std::string encode(const IterationRecord& record) {
  WireWriter writer;
  writer.put(record.iteration);
  writer.put(record.begin_ns);
  writer.put(record.end_ns);
  writer.put(record.prompt_tokens);
  writer.put(record.generated_tokens);
  writer.put(record.queue);
  writer.put_all(record.verified);
  writer.put(record.forecast);
  writer.put(record.draft_bytes);
  writer.put(record.gave_up_drafts);
  writer.put(record.tail_cpu_ns);
  writer.put(record.agree_cpu_ns);
  writer.put(record.wall_ns);
  writer.put(record.schedule_ns);
  writer.put(static_cast<uint32_t>(record.layers.size()));
  for (const LayerRecord& layer : record.layers) {
    writer.put(layer.other_cpu_ns);
    writer.put(layer.experts_cpu_ns);
    writer.put(layer.shared_cpu_ns);
    writer.put(layer.exchange_cpu_ns);
    writer.put_all(layer.sent);
    writer.put_all(layer.counts);
    writer.put(layer.initial_imbalance);
  }
  return writer.take();
}

IterationRecord decode_iteration(std::string_view bytes) {
  WireReader reader(bytes);
  IterationRecord record;
  record.iteration = reader.get<int64_t>();
  record.begin_ns = reader.get<int64_t>();
  record.end_ns = reader.get<int64_t>();
  record.prompt_tokens = reader.get<int64_t>();
  record.generated_tokens = reader.get<int64_t>();
  record.queue = reader.get<QueueRecord>();
  record.verified = reader.get_all<Verified>();
  record.forecast = reader.get<Forecast>();
  record.draft_bytes = reader.get<int64_t>();
  record.gave_up_drafts = reader.get<bool>();
  record.tail_cpu_ns = reader.get<int64_t>();
  record.agree_cpu_ns = reader.get<int64_t>();
  record.wall_ns = reader.get<int64_t>();
  record.schedule_ns = reader.get<int64_t>();
  record.layers.resize(reader.get<uint32_t>());
  for (LayerRecord& layer : record.layers) {
    layer.other_cpu_ns = reader.get<int64_t>();
    layer.experts_cpu_ns = reader.get<int64_t>();
    layer.shared_cpu_ns = reader.get<int64_t>();
    layer.exchange_cpu_ns = reader.get<int64_t>();
    layer.sent = reader.get_all<int32_t>();
    layer.counts = reader.get_all<int32_t>();
    layer.initial_imbalance = reader.get<float>();
  }
  return record;
}

}  // namespace wideep::engine
