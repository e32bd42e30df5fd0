// SPDX-License-Identifier: Apache-2.0
//
// Rows and results of dispatch between nodes (transport/bridge.h): a token row crosses to a node
// once, however many of its slots are there.
//
//   rows       a parcel to each node of all tokens that have slots there; the deputy spreads them
//              into the segments of their ranks, as the source itself does on its own node
//   results    a parcel to each node of the result rows of all sources there; the deputy lays them
//              into its image of this rank's segment, where the sources read them
//   sums       kReduced: instead of results. A source's deputy, which has spread its rows, adds up
//              what its node's ranks have made of each token, in the order of the ranks, and sends
//              one row for it; the source reads it in the image of that deputy's segment
//
// Parcels say themselves where everything belongs: a deputy takes them in whatever step it is
// itself in. Buffers are free then for the same reasons as on one node (dispatch_combine.h): what
// the source has seen before it sends holds for its deputy too.
//
// Thread safety: one thread per rank.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ep/buffer_layout.h"
#include "transport/bridge.h"
#include "transport/endpoint.h"

namespace wideep::ep {

// Adds rows of results up, in float32 and in their order, into one of the same form.
using RowSum = std::function<void(std::span<const std::byte* const> rows, std::byte* sum)>;

class NodeCrossing {
 public:
  // REQUIRES: endpoint.bridge() is set, and outlives this.
  NodeCrossing(transport::Endpoint& endpoint, const BufferLayout& layout);
  ~NodeCrossing();
  NodeCrossing(const NodeCrossing&) = delete;
  NodeCrossing& operator=(const NodeCrossing&) = delete;

  // ---- source side ----

  // The next token of a call, which has slots on other nodes or not. area: of this rank. slots,
  // weights: [top_k]; destination_of: [top_k] the ranks of their first slices. weights: null but
  // for kReduced.
  struct Token {
    uint32_t call;  // its number
    int64_t area;
    const std::byte* row;
    const int32_t* slots;
    const float* weights;
    std::span<const int32_t> destination_of;
  };
  void add(const Token& token);
  // The call has no more.
  void send_rows();

  // Whether one sum comes back for each (token, node): kReduced, where the deputies are ranks of
  // the group. All its ranks know the same.
  bool sums_on_nodes() const { return sums_on_nodes_; }
  // Where that of the token that was added last will be. REQUIRES: it has slots on the node.
  const std::byte* sum_from(int node, int64_t area) const;

  // ---- destination side ----

  // The first `count` results of the area of `source`, which is on another node.
  void add_results(int source, int64_t area, int count);
  void send_results();
  // Sums of the call for all sources whose deputy this rank is. The results of all ranks of this
  // node are there.
  void send_sums(uint32_t call, const RowSum& add_rows);

  // Since the start, of this rank's tokens: rows that had to cross, one for each (token, node); and
  // rows that had to come back, one for each (token, expert), kReduced: for each (token, node). Of
  // sliced experts: slices of rows, kReduced: for each (token, rank).
  int64_t token_nodes() const { return token_nodes_; }
  int64_t returned_rows() const { return returned_rows_; }

 private:
  struct RowsHeader;
  struct ResultsHeader;
  // Of one rank that a parcel of rows is spread to. segment: null of ranks of other nodes.
  struct Spread {
    std::byte* segment = nullptr;
    int32_t num_messages = 0;  // of the parcel so far
    int32_t num_slots = 0;     // of the token so far
  };

  // What a source has to be given for its tokens of a call.
  struct Owed {
    int node = 0;
    int64_t area = 0;
    std::vector<int32_t> num_rows;       // [tokens]
    std::vector<const std::byte*> rows;  // of all of them, by token and rank
  };

  bool deputies_are_in_group() const;
  size_t lists_bytes() const;
  transport::Parcel& rows_to(int node, const Token& token);
  transport::Parcel& results_to(int node);
  int node_of(int rank) const { return bridge_.nodes().node_of(endpoint_.world_rank(rank)); }
  void find_nodes(const Token& token);
  bool is_on(int node, int32_t owner) const;
  void spread(int from, std::span<const std::byte> body);
  void spread_token(const std::byte* token, int64_t area, Owed* owed);
  void append_sums(const Owed& owed, const RowSum& add_rows);
  void lay_results(int from, std::span<const std::byte> body) const;

  transport::Endpoint& endpoint_;
  transport::Bridge& bridge_;
  BufferLayout layout_;
  // By node; nothing: nothing to send.
  std::vector<std::optional<transport::Parcel>> rows_;
  std::vector<std::optional<transport::Parcel>> results_;
  std::vector<int> nodes_of_token_, ranks_of_token_;  // others than this one's
  bool sums_on_nodes_;
  std::vector<int> num_tokens_;            // by node, of the call
  std::array<std::vector<Owed>, 2> owed_;  // by the parity of the call
  std::vector<std::byte> sum_;             // [result_bytes]
  std::vector<Spread> spreads_;            // [ep_size]
  std::vector<Spread*> reached_;           // by the token
  int64_t token_nodes_ = 0;
  int64_t returned_rows_ = 0;
};

}  // namespace wideep::ep
