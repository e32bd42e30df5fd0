// SPDX-License-Identifier: Apache-2.0
//
// Plain events travel as their bytes. One with a vector or a text needs a list here, and does not
// compile without; but a new member that its list leaves out arrives as its default, which only
// event_test.cc can find. Both ends are one build, so a message that cannot be read is our own
// fault and ends the process.
#include "run/event.h"

#include <array>
#include <concepts>
#include <type_traits>

#include "schedule/wire.h"

namespace wideep::run {
namespace {

using engine::WireReader;
using engine::WireWriter;

template <typename T, typename Event>
concept Is = std::same_as<std::remove_const_t<T>, Event>;

// The fields of each event in the order of their bytes: one list for both ways. What has no list
// here is plain bytes.
template <typename Wire, typename T>
void transfer(Wire& wire, T& plain) {
  wire.fields(plain);
}

template <typename Wire>
void transfer(Wire& wire, Is<Token> auto& each) {
  wire.fields(each.request_index, each.rank, each.sampled, each.finish_reason, each.cached_tokens,
              each.step_drafts, each.digest, each.likely);
}

template <typename Wire>
void transfer(Wire& wire, Is<MembersChanged> auto& each) {
  wire.fields(each.epoch, each.ranks, each.reloaded);
}

void transfer(WireWriter& writer, const RankIteration& each) {
  writer.put_text(engine::encode(each.record));
}
void transfer(WireReader& reader, RankIteration& each) {
  each.record = engine::decode_iteration(reader.get_text());
}

template <typename Wire>
void transfer(Wire& wire, Is<Rebalance> auto& each) {
  wire.fields(each.iteration, each.decided, each.layers, each.cancelled, each.moves, each.bytes,
              each.imbalance_before, each.imbalance_after, each.seconds, each.copy_seconds,
              each.lent_copies, each.refused_loans, each.expected_seconds, each.ledger,
              each.switches);
}

template <typename Wire>
void transfer(Wire& wire, Is<ExpertLoad> auto& each) {
  wire.fields(each.first_layer, each.counts);
}

template <typename Wire>
void transfer(Wire& wire, Is<ExpertPlaces> auto& each) {
  wire.fields(each.rank, each.num_owned, each.num_records, each.record_bytes, each.read_bytes,
              each.read_seconds, each.layers, each.counts);
}

template <typename Wire>
void transfer(Wire& wire, Is<RequestCounts> auto& each) {
  wire.fields(each.request_index, each.counts);
}

template <typename Wire>
void transfer(Wire& wire, Is<RoutedPart> auto& each) {
  wire.fields(each.request_index, each.first_layer, each.num_layers, each.positions,
              each.iterations, each.experts);
}

template <typename Wire>
void transfer(Wire& wire, Is<PagesFound> auto& each) {
  wire.fields(each.ticket, each.rank, each.known, each.found, each.states, each.is_stateless,
              each.seconds, each.is_promised, each.peer_kind, each.peer_trouble);
}

template <typename Wire>
void transfer(Wire& wire, Is<PagesFetched> auto& each) {
  auto& peer = each.from_peer;
  wire.fields(each.ticket, each.rank, each.pages, each.has_room, each.seconds, each.bytes,
              peer.pages, peer.bytes, peer.seconds, peer.transfer_seconds, peer.exposed_seconds,
              peer.kind, peer.trouble);
}

template <typename Wire>
void transfer(Wire& wire, Is<PagesChanged> auto& each) {
  wire.fields(each.rank, each.is_cleared, each.changes);
}

template <typename Wire>
void transfer(Wire& wire, Is<StoreState> auto& each) {
  wire.fields(each.rank, each.not_offered, each.tiers);
}

// Reads the alternative of the variant with this index: the index is known only at run time, the
// type must be known at compile time.
template <size_t kIndex = 0>
RankEvent get_alternative(size_t index, WireReader& reader) {
  if constexpr (kIndex < std::variant_size_v<RankEvent>) {
    if (index == kIndex) {
      std::variant_alternative_t<kIndex, RankEvent> event;
      transfer(reader, event);
      return event;
    }
    return get_alternative<kIndex + 1>(index, reader);
  } else {
    WIDEEP_CHECK_LT(index, kIndex);
    return {};
  }
}

}  // namespace

std::string_view name_of(PeerTrouble trouble) {
  constexpr std::array<std::string_view, 8> kNames = {"",        "gone", "ended",   "unknown",
                                                      "missing", "busy", "no_room", "unused"};
  return kNames[static_cast<size_t>(trouble)];
}

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
  std::visit([&](const auto& each) { transfer(writer, each); }, event);
  return writer.take();
}

RankEvent decode(std::string_view message) {
  WireReader reader(message);
  const size_t index = reader.get<uint8_t>();
  return get_alternative(index, reader);
}

}  // namespace wideep::run
