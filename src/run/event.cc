// SPDX-License-Identifier: Apache-2.0
#include "run/event.h"

#include "engine/wire.h"

namespace wideep::run {
namespace {

using engine::WireReader;
using engine::WireWriter;

// ---- writing: types that are not trivially copyable have an overload of put ----

template <typename T>
void put(WireWriter& writer, const T& plain) {
  writer.put(plain);
}

void put(WireWriter& writer, const Token& token) {
  writer.put(token.request_index);
  writer.put(token.rank);
  writer.put(token.sampled);
  writer.put(token.finish_reason);
  writer.put(token.cached_tokens);
  writer.put(token.step_drafts);
  writer.put_text(token.digest);
  writer.put_all(token.likely);
}

void put(WireWriter& writer, const MembersChanged& change) {
  writer.put(change.epoch);
  writer.put_all(change.ranks);
  writer.put(change.reloaded);
}

void put(WireWriter& writer, const RankIteration& record) {
  writer.put_text(engine::encode(record.record));
}

void put(WireWriter& writer, const Rebalance& each) {
  writer.put(each.iteration);
  writer.put(each.decided);
  writer.put(each.layers);
  writer.put(each.cancelled);
  writer.put(each.moves);
  writer.put(each.bytes);
  writer.put(each.imbalance_before);
  writer.put(each.imbalance_after);
  writer.put(each.seconds);
  writer.put(each.copy_seconds);
  writer.put(each.expected_seconds);
  writer.put(each.ledger);
  writer.put_all(each.switches);
}

void put(WireWriter& writer, const ExpertLoad& load) {
  writer.put(load.first_layer);
  writer.put_all(load.counts);
}

void put(WireWriter& writer, const RequestCounts& counts) {
  writer.put(counts.request_index);
  writer.put_all(counts.counts);
}

void put(WireWriter& writer, const RoutedPart& part) {
  writer.put(part.request_index);
  writer.put(part.first_layer);
  writer.put(part.num_layers);
  writer.put_all(part.positions);
  writer.put_all(part.iterations);
  writer.put_all(part.experts);
}

// ---- reading ----

template <typename T>
T get(WireReader& reader) {
  return reader.get<T>();
}

template <>
Token get<Token>(WireReader& reader) {
  Token token;
  token.request_index = reader.get<int>();
  token.rank = reader.get<int>();
  token.sampled = reader.get<engine::Sampled>();
  token.finish_reason = reader.get<engine::FinishReason>();
  token.cached_tokens = reader.get<int>();
  token.step_drafts = reader.get<int>();
  token.digest = reader.get_text();
  token.likely = reader.get_all<engine::Sampled>();
  return token;
}

template <>
MembersChanged get<MembersChanged>(WireReader& reader) {
  MembersChanged change;
  change.epoch = reader.get<uint32_t>();
  change.ranks = reader.get_all<int>();
  change.reloaded = reader.get<int>();
  return change;
}

template <>
RankIteration get<RankIteration>(WireReader& reader) {
  return {engine::decode_iteration(reader.get_text())};
}

template <>
Rebalance get<Rebalance>(WireReader& reader) {
  Rebalance each;
  each.iteration = reader.get<int64_t>();
  each.decided = reader.get<int64_t>();
  each.layers = reader.get<int>();
  each.cancelled = reader.get<int>();
  each.moves = reader.get<int64_t>();
  each.bytes = reader.get<int64_t>();
  each.imbalance_before = reader.get<double>();
  each.imbalance_after = reader.get<double>();
  each.seconds = reader.get<double>();
  each.copy_seconds = reader.get<double>();
  each.expected_seconds = reader.get<double>();
  each.ledger = reader.get<online::LedgerSums>();
  each.switches = reader.get_all<online::LayerSwitch>();
  return each;
}

template <>
ExpertLoad get<ExpertLoad>(WireReader& reader) {
  const int first_layer = reader.get<int>();
  return {first_layer, reader.get_all<int64_t>()};
}

template <>
RequestCounts get<RequestCounts>(WireReader& reader) {
  const int index = reader.get<int>();
  return {index, reader.get_all<int64_t>()};
}

template <>
RoutedPart get<RoutedPart>(WireReader& reader) {
  RoutedPart part;
  part.request_index = reader.get<int>();
  part.first_layer = reader.get<int>();
  part.num_layers = reader.get<int>();
  part.positions = reader.get_all<int32_t>();
  part.iterations = reader.get_all<int64_t>();
  part.experts = reader.get_all<int32_t>();
  return part;
}

// Reads the alternative of the variant with this index: the index is known only at run time, the
// type must be known at compile time.
template <size_t kIndex = 0>
RankEvent get_alternative(size_t index, WireReader& reader) {
  if constexpr (kIndex < std::variant_size_v<RankEvent>) {
    if (index == kIndex) return get<std::variant_alternative_t<kIndex, RankEvent>>(reader);
    return get_alternative<kIndex + 1>(index, reader);
  } else {
    WIDEEP_CHECK_LT(index, kIndex);
    return {};
  }
}

}  // namespace

void NodeTraffic::add(const NodeTraffic& other) {
  dispatched_rows += other.dispatched_rows;
  dispatched_bytes += other.dispatched_bytes;
  returned_rows += other.returned_rows;
  returned_bytes += other.returned_bytes;
  other_bytes += other.other_bytes;
}

// A message is the index of the alternative (uint8_t), then its value.
std::string encode(const RankEvent& event) {
  WireWriter writer;
  writer.put(static_cast<uint8_t>(event.index()));
  std::visit([&](const auto& each) { put(writer, each); }, event);
  return writer.take();
}

RankEvent decode(std::string_view message) {
  WireReader reader(message);
  const size_t index = reader.get<uint8_t>();
  return get_alternative(index, reader);
}

}  // namespace wideep::run
