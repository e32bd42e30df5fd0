// SPDX-License-Identifier: Apache-2.0
#include "engine/iteration_record.h"

#include "engine/wire.h"

namespace wideep::engine {

std::string encode(const IterationRecord& record) {
  WireWriter writer;
  writer.put(record.iteration);
  writer.put(record.prompt_tokens);
  writer.put(record.generated_tokens);
  writer.put(record.tail_cpu_ns);
  writer.put(record.wall_ns);
  writer.put(static_cast<uint32_t>(record.layers.size()));
  for (const LayerRecord& layer : record.layers) {
    writer.put(layer.other_cpu_ns);
    writer.put(layer.experts_cpu_ns);
    writer.put_all(layer.sent);
    writer.put_all(layer.counts);
  }
  return writer.take();
}

IterationRecord decode_iteration(std::string_view bytes) {
  WireReader reader(bytes);
  IterationRecord record;
  record.iteration = reader.get<int64_t>();
  record.prompt_tokens = reader.get<int64_t>();
  record.generated_tokens = reader.get<int64_t>();
  record.tail_cpu_ns = reader.get<int64_t>();
  record.wall_ns = reader.get<int64_t>();
  record.layers.resize(reader.get<uint32_t>());
  for (LayerRecord& layer : record.layers) {
    layer.other_cpu_ns = reader.get<int64_t>();
    layer.experts_cpu_ns = reader.get<int64_t>();
    layer.sent = reader.get_all<int32_t>();
    layer.counts = reader.get_all<int32_t>();
  }
  return record;
}

}  // namespace wideep::engine
