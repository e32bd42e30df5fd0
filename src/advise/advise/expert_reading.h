// SPDX-License-Identifier: Apache-2.0
//
// How long an iteration takes of a model larger than memory: of its experts a share is in memory,
// and the others are read from a disk when the router has chosen them.
//
// The engine computes the experts of a layer that are in memory while the others are read, and these
// as they arrive; nothing of the next layer is read ahead. So a layer that misses m experts takes
//
//   max(experts, m · record ÷ bandwidth + experts ÷ reads)
//
// where `experts` is what computing all of the layer's chosen experts takes, and the last term the
// one that arrives last. How many miss differs from layer to layer: m is taken as if each expert
// missed by itself, with the same probability, and of several nodes, which read at the same time,
// the one that misses most counts. The rest of an iteration waits for neither.
//
// Two other times stand beside it. The bound has all reading overlapped with all computing, as if it
// were known long before what is chosen: max(computing, reading). Without any overlap it is their
// sum.
//
// Thread safety: plain values; a pure function.
#pragma once

namespace wideep::advise {

// An iteration of a model as it would be with all experts in memory.
struct IterationInMemory {
  double tokens = 1.0;       // that it generates
  double reads = 1.0;        // experts of a layer that its tokens choose, over all nodes
  double experts = 0.0;      // seconds of computing them, in all layers
  double rest = 0.0;         // seconds of all else
  double dense_bytes = 0.0;  // that all else reads, once
};

struct StoredExperts {
  int num_layers = 1;           // with experts
  int num_experts = 1;          // of a layer
  int nodes = 1;                // each has its part of the experts, on a disk of its own
  double record_bytes = 0.0;    // of an expert
  double disk_bandwidth = 0.0;  // bytes per second, of a node

  double bytes() const { return record_bytes * num_layers * num_experts; }
};

struct ReadingTime {
  double hit_rate = 0.0;
  double memory_bytes = 0.0, disk_bytes = 0.0;  // read for a token
  double computing = 0.0, reading = 0.0;        // seconds of an iteration, each alone
  double seconds = 0.0;                         // of an iteration, as predicted
  double tokens = 1.0;                          // of an iteration

  double bound_seconds() const { return computing > reading ? computing : reading; }
  double seconds_without_overlap() const { return computing + reading; }
  double tokens_per_second() const { return tokens / seconds; }
};

// REQUIRES: counts, bytes of a record and bandwidth are positive; hit_rate is in [0, 1].
ReadingTime reading_time(const IterationInMemory& iteration, const StoredExperts& stored,
                         double hit_rate);

}  // namespace wideep::advise
