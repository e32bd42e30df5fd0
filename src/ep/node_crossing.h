// SPDX-License-Identifier: Apache-2.0
//
// Rows and results of dispatch between nodes (transport/bridge.h): a token row crosses to a node
// once, however many of its slots are there.
//
//   rows       a source sends each node one parcel, with all tokens that have slots there; its
//   proxy
//              writes them into the segments of their ranks, as the source does on its own node
//   results    a rank sends each node one parcel, with the result rows of all sources there; its
//              proxy writes them into the image of its segment, where the sources read them
//   sums       kReduced, instead of results: a source's proxy, which has distributed its rows, adds
//              up the results of its node's ranks for each token, in the order of the ranks, and
//              sends one row; the source reads it in the image of the proxy's segment
//
// A parcel says itself where everything belongs, so a proxy can handle it in whatever step it is
// itself. The buffers are free then for the same reasons as on one node (dispatch_combine.h): what
// the source has seen before it sends is true for its proxy too.
//
// Parcels that reach a rank before its NodeCrossing is made are lost: all ranks of the world meet
// between making theirs and the first call.
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

// Adds up result rows, in float32 and in their order, into one row of the same form.
using RowSum = std::function<void(std::span<const std::byte* const> rows, std::byte* sum)>;

class NodeCrossing {
 public:
  // REQUIRES: endpoint.bridge() is set, and outlives this.
  NodeCrossing(transport::Endpoint& endpoint, const BufferLayout& layout);
  ~NodeCrossing();
  NodeCrossing(const NodeCrossing&) = delete;
  NodeCrossing& operator=(const NodeCrossing&) = delete;

  // ---- source side ----

  // The next token of a call, whether it has slots on other nodes or not.
  struct Token {
    uint32_t call;  // its number
    int64_t area;   // of this rank in the call
    const std::byte* row;
    const int32_t* slots;                    // [top_k]
    const float* weights;                    // [top_k]; null but for kReduced
    std::span<const int32_t> owner_of_slot;  // [top_k] see token_destinations.h
  };
  void add(const Token& token);
  // The call has no more tokens.
  void send_rows();

  // Whether one sum comes back for each (token, node): kReduced, where the proxies are ranks of
  // the group. The same on all ranks of the group.
  bool sums_on_nodes() const { return sums_on_nodes_; }
  // Where the sum of the token that was added last will lie. REQUIRES: it has slots on the node.
  const std::byte* sum_from(int node, int64_t area) const;
  int node_of(int rank) const { return bridge_.nodes().node_of(endpoint_.world_rank(rank)); }

  // ---- destination side ----

  // The first `count` results of the area of `source`, which is on another node.
  void add_results(int source, int64_t area, int count);
  void send_results();
  // The sums of the call for all sources whose proxy this rank is. REQUIRES: the results of all
  // ranks of this node are there.
  void send_sums(uint32_t call, const RowSum& add_rows);

  // Of this rank's tokens since the start: rows that had to cross, one for each (token, node); and
  // rows that had to come back, one for each (token, expert) or, kReduced, for each (token, node).
  // With sliced experts slices of rows come back, kReduced for each (token, rank).
  int64_t token_nodes() const { return token_nodes_; }
  int64_t returned_rows() const { return returned_rows_; }

 private:
  struct RowsHeader;
  struct ResultsHeader;
  // A rank that the rows of a parcel are distributed to.
  struct Receiver {
    std::byte* segment = nullptr;  // null: the rank is on another node
    int32_t num_messages = 0;      // of the parcel so far
    int32_t num_slots = 0;         // of the token so far
  };

  // The sums that this rank has to send to a source for its tokens of a call.
  struct OwedSums {
    int node = 0;  // of the source
    int64_t area = 0;
    std::vector<int32_t> num_rows;       // [tokens] how many rows each sum is of
    std::vector<const std::byte*> rows;  // these rows, by token and rank
  };

  bool proxies_are_in_group() const;
  size_t lists_bytes() const;
  transport::Parcel& rows_to(int node, const Token& token);
  transport::Parcel& results_to(int node);
  void find_nodes(const Token& token);
  bool is_on(int node, int32_t owner) const;
  void distribute(int from, std::span<const std::byte> body);
  void distribute_token(const std::byte* token, int64_t area, OwedSums* owed);
  void append_sums(const OwedSums& owed, const RowSum& add_rows);
  void write_results(int from, std::span<const std::byte> body) const;

  transport::Endpoint& endpoint_;
  transport::Bridge& bridge_;
  BufferLayout layout_;
  bool sums_on_nodes_;

  // Source side.
  std::vector<std::optional<transport::Parcel>> rows_;  // [num_nodes]; empty: nothing to send
  std::vector<int> nodes_of_token_, ranks_of_token_;    // of the current token, on other nodes
  std::vector<int> num_tokens_;                         // [num_nodes] sent to each in the call

  // Destination side, and as a proxy.
  std::vector<std::optional<transport::Parcel>> results_;  // [num_nodes]; empty: nothing to send
  std::array<std::vector<OwedSums>, 2> owed_;              // by the parity of the call
  std::vector<std::byte> sum_;                             // [result_bytes]
  std::vector<Receiver> receivers_;                        // [ep_size] of the current parcel
  std::vector<Receiver*> receivers_of_token_;
  int64_t token_nodes_ = 0;
  int64_t returned_rows_ = 0;
};

}  // namespace wideep::ep
