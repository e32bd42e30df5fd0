// SPDX-License-Identifier: Apache-2.0
//
// How long a dispatch or a combine of one layer takes between the ranks of a node or of several.
//
//   links    bytes that a rank sends to others of its node, and to other nodes; both flow at once
//   serial   the busiest processor: the rows of an expert, which one processor handles one by one;
//            of a bulk exchange its share of all bytes, since a few processors carry them
//
//   seconds = overhead + latency + (links² + serial²)^(1/2)
//
// The latency is a multiple of that of the smallest collective over the same link, as measured with
// NCCL; so is the bandwidth.
//
// Thread safety: plain values; pure functions.
#pragma once

#include "cost/hardware.h"

namespace wideep::cost {

// What one rank sends; every rank sends as much.
struct ExchangeWork {
  int num_ranks = 1;
  double rows = 0.0;  // (token, expert) pairs, or (token, rank) pairs if a rank gets a row once
  double row_bytes = 0.0;  // with scales and indices
  // What the busiest processor handles: rows; or, of a bulk exchange, bytes.
  double serial = 0.0;
};

// Of all rows, the part that goes to other ranks of the node, and to other nodes, if the
// destinations are spread evenly. Of divisible devices all count as of one node: what crosses is
// wire_seconds().
struct RowsAway {
  double node = 0.0;
  double network = 0.0;
};
RowsAway rows_away(const Hardware& hardware, int num_ranks);

// What goes over the network between nodes of divisible devices, beside the exchange itself, whose
// work is done by the cores: of all that a node's ranks send, the part for other nodes. 0 where all
// ranks are on one node.
double wire_seconds(const Hardware& hardware, const ExchangeWork& work);

// What a rank's messages to the other nodes take of cores, one to each, whatever is in it.
double message_seconds(const Hardware& hardware, int num_ranks);

// REQUIRES: work.num_ranks fit into one node, or hardware has a network.
double exchange_seconds(const Hardware& hardware, const ExchangeKernel& kernel,
                        const ExchangeWork& work);

}  // namespace wideep::cost
