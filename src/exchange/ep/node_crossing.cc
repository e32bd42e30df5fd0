// SPDX-License-Identifier: Apache-2.0
//
// A source sends one parcel to each other node; the proxy there writes the rows as the source
// itself would. Everything in a parcel is a position that this node compares with its own memory,
// since what comes over a network must not be able to write anywhere else. Parcels list their
// ranks in the group and in the world: the proxy may belong to another group, whose numbers mean
// other ranks. Sums are added by rank, so that neither placement nor arrival changes their bits.
#include "ep/node_crossing.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace wideep::ep {
namespace {

using transport::Parcel;
using transport::Traffic;

enum class ParcelKind : int64_t { kRows, kResults };

void add_once(int value, std::vector<int>& values) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

template <typename T>
T read(const std::byte*& at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  at += sizeof(value);
  return value;
}

}  // namespace

// A parcel of rows: RowsHeader; for each rank of the node, its rank in the group and in the world,
// int32 each; then for each token: slots [top_k] int32 (−1: on another node), weights [top_k]
// float32 (kReduced only), row. It lists ranks because the proxy may belong to another group.
struct NodeCrossing::RowsHeader {
  ParcelKind kind = ParcelKind::kRows;
  uint32_t call = 0;
  uint32_t wants_sums = 0;
  int64_t area = 0;
  int64_t num_ranks = 0;
};

// A parcel of results: ParcelKind; then for each source: ResultsHeader and `count` result rows.
struct NodeCrossing::ResultsHeader {
  int64_t area = 0;
  int64_t count = 0;
};

NodeCrossing::NodeCrossing(transport::Endpoint& endpoint, const BufferLayout& layout)
    : endpoint_(endpoint),
      bridge_(*endpoint.bridge()),
      layout_(layout),
      sums_on_nodes_(layout.shape().combine == Combine::kReduced &&
                     layout.shape().num_slices == 1 && proxies_are_in_group()),
      rows_(static_cast<size_t>(bridge_.nodes().num_nodes())),
      num_tokens_(rows_.size()),
      results_(rows_.size()),
      sum_(layout.shape().result_bytes),
      receivers_(static_cast<size_t>(layout.shape().ep_size)) {
  static_assert(std::has_unique_object_representations_v<RowsHeader>);
  bridge_.set_on_parcel([this](int from, std::span<const std::byte> body) {
    if (body.size() < sizeof(ParcelKind)) return false;
    const std::byte* at = body.data();
    const auto kind = read<ParcelKind>(at);
    if (kind == ParcelKind::kRows) return distribute(from, body);
    return kind == ParcelKind::kResults && write_results(from, body.subspan(sizeof(ParcelKind)));
  });
}

NodeCrossing::~NodeCrossing() { bridge_.set_on_parcel({}); }

// Whether, on every node with ranks of the group, the proxies of all its ranks are ranks of the
// group too. A proxy outside the group does not wait for the group's flags, so it could not know
// when the results on its node are complete.
bool NodeCrossing::proxies_are_in_group() const {
  if (endpoint_.ranks_on_node() == endpoint_.num_ranks()) return false;
  const transport::NodeMap& nodes = bridge_.nodes();
  std::vector<int> group;
  for (int rank = 0; rank < endpoint_.num_ranks(); ++rank) {
    group.push_back(endpoint_.world_rank(rank));
  }
  for (const int rank : group) {
    for (const int other : group) {
      if (nodes.node_of(rank) == nodes.node_of(other)) continue;
      const int proxy = nodes.proxy(rank, nodes.node_of(other));
      if (std::find(group.begin(), group.end(), proxy) == group.end()) return false;
    }
  }
  return true;
}

size_t NodeCrossing::lists_bytes() const {
  const bool reduced = layout_.shape().combine == Combine::kReduced;
  return static_cast<size_t>(layout_.shape().top_k) * (reduced ? 8 : 4);
}

// ---- rows ----

Parcel& NodeCrossing::rows_to(int node, const Token& token) {
  std::optional<Parcel>& parcel = rows_[static_cast<size_t>(node)];
  if (parcel) return *parcel;
  parcel.emplace(0);
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < endpoint_.num_ranks(); ++rank) {
    const int world_rank = endpoint_.world_rank(rank);
    if (bridge_.nodes().node_of(world_rank) != node) continue;
    ranks.insert(ranks.end(), {rank, world_rank});
  }
  parcel->put(RowsHeader{.call = token.call,
                         .wants_sums = sums_on_nodes_ ? 1u : 0u,
                         .area = token.area,
                         .num_ranks = static_cast<int64_t>(ranks.size()) / 2});
  parcel->append(ranks.data(), ranks.size() * sizeof(int32_t));
  return *parcel;
}

// Finds the other nodes with slots of the token, and counts the rows that will be sent back from
// there. A slot has one rank per slice, and the row goes to all of them. kExact: a row for each
// slot and slice is sent back; kReduced: one for each rank, or for each node.
void NodeCrossing::find_nodes(const Token& token) {
  const DispatchShape& shape = layout_.shape();
  nodes_of_token_.clear();
  ranks_of_token_.clear();
  for (const int32_t owner : token.owner_of_slot) {
    for (int rank = owner; rank < shape.ep_size; rank += shape.num_owners()) {
      const int node = node_of(rank);
      if (node == bridge_.node()) continue;
      if (shape.combine == Combine::kExact) ++returned_rows_;
      add_once(rank, ranks_of_token_);
      add_once(node, nodes_of_token_);
    }
  }
  if (shape.combine == Combine::kExact) return;
  returned_rows_ +=
      static_cast<int64_t>((sums_on_nodes_ ? nodes_of_token_ : ranks_of_token_).size());
}

// Whether a rank with one of the owner's slices is on the node.
bool NodeCrossing::is_on(int node, int32_t owner) const {
  const DispatchShape& shape = layout_.shape();
  for (int rank = owner; rank < shape.ep_size; rank += shape.num_owners()) {
    if (node_of(rank) == node) return true;
  }
  return false;
}

void NodeCrossing::add(const Token& token) {
  const auto top_k = static_cast<size_t>(layout_.shape().top_k);
  find_nodes(token);
  for (const int node : nodes_of_token_) {
    Parcel& parcel = rows_to(node, token);
    for (size_t k = 0; k < top_k; ++k) {
      parcel.put(is_on(node, token.owner_of_slot[k]) ? token.slots[k] : int32_t{-1});
    }
    if (token.weights != nullptr) parcel.append(token.weights, top_k * sizeof(float));
    parcel.append(token.row, layout_.shape().row_bytes);
    ++num_tokens_[static_cast<size_t>(node)];
    ++token_nodes_;
  }
}

// The proxy writes its i-th sum for a source as the i-th result of the source's area, in the order
// in which the source has added tokens for the node.
const std::byte* NodeCrossing::sum_from(int node, int64_t area) const {
  const int proxy = bridge_.nodes().proxy(endpoint_.world_rank(), node);
  return layout_.result(endpoint_.memory().segment(proxy), area,
                        num_tokens_[static_cast<size_t>(node)] - 1);
}

void NodeCrossing::send_rows() {
  std::fill(num_tokens_.begin(), num_tokens_.end(), 0);
  for (size_t node = 0; node < rows_.size(); ++node) {
    if (!rows_[node]) continue;
    bridge_.send(static_cast<int>(node), std::move(*rows_[node]), Traffic::kRows);
    rows_[node].reset();
  }
}

// As the proxy of a source: writes messages, as PushDelivery does on the source's own node.
bool NodeCrossing::distribute(int from, std::span<const std::byte> body) {
  if (body.size() < sizeof(RowsHeader)) return false;
  const std::byte* at = body.data();
  const auto header = read<RowsHeader>(at);
  const int ranks_here = static_cast<int>(bridge_.nodes().ranks_of(bridge_.node()).size());
  const size_t size = body.size() - sizeof(RowsHeader);
  if (header.num_ranks < 0 || header.num_ranks > ranks_here || header.area < 0) return false;
  const size_t ranks_bytes = static_cast<size_t>(header.num_ranks) * 2 * sizeof(int32_t);
  const size_t token_bytes = lists_bytes() + layout_.shape().row_bytes;
  if (size < ranks_bytes || (size - ranks_bytes) % token_bytes != 0) return false;
  if (!read_receivers(body.subspan(sizeof(RowsHeader), ranks_bytes))) return false;
  at += ranks_bytes;
  PendingSums* pending = nullptr;
  if (header.wants_sums != 0) {
    if (layout_.shape().combine != Combine::kReduced) return false;
    pending = &pending_sums_[header.call & 1].emplace_back();
    pending->node = bridge_.nodes().node_of(from);
    pending->area = header.area;
  }
  for (const std::byte* end = body.data() + body.size(); at < end; at += token_bytes) {
    if (!distribute_token(at, header.area, pending)) return false;
  }
  return true;
}

// The previous parcel may have been of another group, in which these rank numbers mean other ranks.
bool NodeCrossing::read_receivers(std::span<const std::byte> ranks) {
  std::fill(receivers_.begin(), receivers_.end(), Receiver{});
  const std::byte* at = ranks.data();
  for (const std::byte* end = at + ranks.size(); at < end;) {
    const auto rank = read<int32_t>(at);
    const auto world_rank = read<int32_t>(at);
    const bool is_right = rank >= 0 && static_cast<size_t>(rank) < receivers_.size() &&
                          world_rank >= 0 && world_rank < bridge_.nodes().num_ranks() &&
                          bridge_.is_on_this_node(world_rank);
    if (!is_right) return false;
    receivers_[static_cast<size_t>(rank)] = {.segment = endpoint_.memory().segment(world_rank)};
  }
  return true;
}

bool NodeCrossing::distribute_token(const std::byte* token, int64_t area, PendingSums* pending) {
  const DispatchShape& shape = layout_.shape();
  const bool reduced = shape.combine == Combine::kReduced;
  const std::byte* weights = token + static_cast<size_t>(shape.top_k) * sizeof(int32_t);
  const std::byte* row = token + lists_bytes();
  receivers_of_token_.clear();
  for (int k = 0; k < shape.top_k; ++k) {
    int32_t slot = 0;
    std::memcpy(&slot, token + k * sizeof(slot), sizeof(slot));
    if (slot < 0) continue;
    if (slot >= shape.num_slots()) return false;
    const std::byte* weight = reduced ? weights + static_cast<size_t>(k) * sizeof(float) : nullptr;
    for (int rank = slot / shape.local_slots(); rank < shape.ep_size; rank += shape.num_owners()) {
      Receiver& to = receivers_[static_cast<size_t>(rank)];
      if (to.segment == nullptr) continue;  // this slice is on another node
      if (to.num_slots == 0) {
        if (area >= layout_.num_messages() - to.num_messages) return false;
        receivers_of_token_.push_back(&to);
        std::fill_n(layout_.slots(to.segment, area, to.num_messages), shape.top_k, -1);
        std::memcpy(layout_.row(to.segment, area, to.num_messages), row, shape.row_bytes);
      }
      layout_.slots(to.segment, area, to.num_messages)[to.num_slots] = slot % shape.local_slots();
      if (weight != nullptr) {
        std::memcpy(&layout_.weights(to.segment, area, to.num_messages)[to.num_slots], weight,
                    sizeof(float));
      }
      ++to.num_slots;
    }
  }
  if (receivers_of_token_.empty()) return false;  // it would not have come here
  if (pending != nullptr) {
    // By rank, since receivers_ is indexed by it: the order of additions must not depend on slots.
    std::sort(receivers_of_token_.begin(), receivers_of_token_.end());
    pending->num_rows.push_back(static_cast<int32_t>(receivers_of_token_.size()));
  }
  for (Receiver* to : receivers_of_token_) {
    if (pending != nullptr)
      pending->rows.push_back(layout_.result(to->segment, area, to->num_messages));
    ++to->num_messages;
    to->num_slots = 0;
  }
  return true;
}

// ---- results ----

void NodeCrossing::add_results(int source, int64_t area, int count) {
  if (count == 0) return;
  Parcel& parcel = results_to(bridge_.nodes().node_of(endpoint_.world_rank(source)));
  parcel.put(ResultsHeader{.area = area, .count = count});
  std::byte* mine = endpoint_.segment(endpoint_.rank());
  for (int i = 0; i < count; ++i) {
    parcel.append(layout_.result(mine, area, i), layout_.shape().result_bytes);
  }
}

Parcel& NodeCrossing::results_to(int node) {
  std::optional<Parcel>& parcel = results_[static_cast<size_t>(node)];
  if (!parcel) {
    parcel.emplace(0);
    parcel->put(ParcelKind::kResults);
  }
  return *parcel;
}

// Rows of the next call may have arrived already, if two calls are in flight. So sums are kept
// apart by the parity of the call.
void NodeCrossing::send_sums(uint32_t call, const RowSum& add_rows) {
  std::vector<PendingSums>& pending = pending_sums_[call & 1];
  for (const PendingSums& each : pending) append_sums(each, add_rows);
  pending.clear();
  send_results();
}

// A sum of one row is the row itself, copied without decoding and rounding it again.
void NodeCrossing::append_sums(const PendingSums& pending, const RowSum& add_rows) {
  Parcel& parcel = results_to(pending.node);
  parcel.put(
      ResultsHeader{.area = pending.area, .count = static_cast<int64_t>(pending.num_rows.size())});
  size_t first = 0;
  for (const int32_t count : pending.num_rows) {
    const auto rows = std::span(pending.rows).subspan(first, static_cast<size_t>(count));
    first += rows.size();
    if (count > 1) add_rows(rows, sum_.data());
    parcel.append(count > 1 ? sum_.data() : rows.front(), sum_.size());
  }
}

void NodeCrossing::send_results() {
  for (size_t node = 0; node < results_.size(); ++node) {
    if (!results_[node]) continue;
    bridge_.send(static_cast<int>(node), std::move(*results_[node]), Traffic::kResults);
    results_[node].reset();
  }
}

// As the proxy of a rank with results: writes them into the image of its segment, where the sources
// on this node read them. For sums, `from` is the proxy that has computed them.
bool NodeCrossing::write_results(int from, std::span<const std::byte> body) const {
  std::byte* image = endpoint_.memory().segment(from);
  const std::byte* at = body.data();
  const size_t bytes = layout_.shape().result_bytes;
  for (const std::byte* end = at + body.size(); at < end;) {
    if (static_cast<size_t>(end - at) < sizeof(ResultsHeader)) return false;
    const auto header = read<ResultsHeader>(at);
    if (!layout_.has_results(header.area, header.count) ||
        static_cast<size_t>(header.count) > static_cast<size_t>(end - at) / bytes) {
      return false;
    }
    for (int i = 0; i < header.count; ++i, at += bytes) {
      std::memcpy(layout_.result(image, header.area, i), at, bytes);
    }
  }
  return true;
}

}  // namespace wideep::ep
