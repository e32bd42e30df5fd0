// SPDX-License-Identifier: Apache-2.0
//
// Sends rows and results of dispatch and combine between nodes, over the bridge
// (transport/bridge.h). A token's row crosses to a node once, however many of its slots are there.
//
//   rows       A source sends one parcel per node, with all tokens that have slots there. Its proxy
//              writes them into the segments of the slots' ranks, as the source does on its own
//              node.
//   results    A rank sends one parcel per node, with the result rows for all sources there. Its
//              proxy writes them into the image of the rank's segment, where the sources read them.
//   sums       kReduced, instead of results: a source's proxy, which has distributed the source's
//              rows, adds up the results of its node's ranks for each token, in rank order, and
//              sends one row. The source reads it in the image of the proxy's segment.
//
// A parcel contains the positions of its rows in the buffers, so a proxy can handle it at any time.
// It compares them with the memory first: a parcel that does not fit fails the group.
// The buffers are free then, for the same reasons as on one node (dispatch_combine.h): the source
// has seen all necessary flags before it sends.
//
// A parcel that arrives before the rank's NodeCrossing exists is lost. REQUIRES: a barrier of the
// world after all ranks have constructed theirs, before the first call.
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

// Adds result rows in float32, in the given order, and writes the sum as a row of the same format.
using RowSum = std::function<void(std::span<const std::byte* const> rows, std::byte* sum)>;

class NodeCrossing {
 public:
  // REQUIRES: endpoint.bridge() is set. Endpoint and bridge outlive this.
  NodeCrossing(transport::Endpoint& endpoint, const BufferLayout& layout);
  ~NodeCrossing();
  NodeCrossing(const NodeCrossing&) = delete;
  NodeCrossing& operator=(const NodeCrossing&) = delete;

  // ---- source side ----

  struct Token {
    uint32_t call;                           // number of the call
    int64_t area;                            // this rank's area in the call
    const std::byte* row;                    // [row_bytes]
    const int32_t* slots;                    // [top_k]
    const float* weights;                    // [top_k]; kReduced only, else null
    std::span<const int32_t> owner_of_slot;  // [top_k] see token_destinations.h
  };
  // Adds the next token of a call to the parcels of the nodes where it has slots, if any.
  void add(const Token& token);
  // Sends the parcels, after the call's last token.
  void send_rows();

  // Whether one sum is sent back for each (token, node): kReduced without slices, if all proxies
  // are ranks of the group. The same on all ranks of the group.
  bool sums_on_nodes() const { return sums_on_nodes_; }
  // The address of the sum for the token added last. REQUIRES: it has slots on the node.
  const std::byte* sum_from(int node, int64_t area) const;
  int node_of(int rank) const { return bridge_.nodes().node_of(endpoint_.world_rank(rank)); }

  // ---- destination side ----

  // Adds the first `count` results in the area of `source`, a rank on another node, to a parcel.
  void add_results(int source, int64_t area, int count);
  // Sends these parcels.
  void send_results();
  // Computes and sends the sums for all sources whose proxy this rank is. REQUIRES: all ranks of
  // this node have written their results of the call.
  void send_sums(uint32_t call, const RowSum& add_rows);

  // Totals over this rank's tokens, for statistics. Rows sent to other nodes: one for each
  // (token, node). Rows sent back: one for each (token, expert); kReduced: one for each (token,
  // node), or for each (token, rank) unless sums_on_nodes(). With sliced experts, rows are slices.
  int64_t token_nodes() const { return token_nodes_; }
  int64_t returned_rows() const { return returned_rows_; }

 private:
  struct RowsHeader;
  struct ResultsHeader;
  // A rank to which the rows of a parcel are distributed.
  struct Receiver {
    std::byte* segment = nullptr;  // null: the rank is on another node
    int32_t num_messages = 0;      // of the parcel so far
    int32_t num_slots = 0;         // of the current token so far
  };

  // The sums that this rank, as a proxy, has to send to one source in a call.
  struct PendingSums {
    int node = 0;  // of the source
    int64_t area = 0;
    std::vector<int32_t> num_rows;       // [tokens] number of addends of each sum
    std::vector<const std::byte*> rows;  // the addends, by token, then by rank
  };

  bool proxies_are_in_group() const;
  size_t lists_bytes() const;
  transport::Parcel& rows_to(int node, const Token& token);
  transport::Parcel& results_to(int node);
  void find_nodes(const Token& token);
  bool is_on(int node, int32_t owner) const;
  // False: the parcel names ranks, slots or places that this node does not have.
  bool distribute(int from, std::span<const std::byte> body);
  bool read_receivers(std::span<const std::byte> ranks);
  bool distribute_token(const std::byte* token, int64_t area, PendingSums* pending);
  void append_sums(const PendingSums& pending, const RowSum& add_rows);
  bool write_results(int from, std::span<const std::byte> body) const;

  transport::Endpoint& endpoint_;
  transport::Bridge& bridge_;
  BufferLayout layout_;
  bool sums_on_nodes_;

  // Source side.
  std::vector<std::optional<transport::Parcel>> rows_;  // [num_nodes]; empty: nothing to send
  std::vector<int> nodes_of_token_, ranks_of_token_;    // other nodes, and their ranks, with slots
  std::vector<int> num_tokens_;                         // [num_nodes] tokens in each parcel

  // Destination side and proxy.
  std::vector<std::optional<transport::Parcel>> results_;  // [num_nodes]; empty: nothing to send
  std::array<std::vector<PendingSums>, 2> pending_sums_;   // by the parity of the call
  std::vector<std::byte> sum_;                             // [result_bytes]
  std::vector<Receiver> receivers_;                        // [ep_size] of the current parcel
  std::vector<Receiver*> receivers_of_token_;
  int64_t token_nodes_ = 0;
  int64_t returned_rows_ = 0;
};

}  // namespace wideep::ep
