// SPDX-License-Identifier: Apache-2.0
//
// What a cost model has to know of a machine: processors, memory, links between ranks, and which
// share of them kernels reach. A YAML file describes one machine; several GPUs are shipped, and
// `wideep doctor --write-hardware` writes the file of the machine that it runs on.
//
//   name: h100_sxm
//   device: NVIDIA H100 SXM
//   devices_per_node: 8
//   processors: 132                             # of a device: multiprocessors, or cores
//   memory: {bytes: 80e9, bandwidth: 3.35e12}   # of a device
//   peak: {bf16: 989e12, fp8: 1979e12}          # operations per second; a multiply-add is two
//   node_link: {latency: 10.7e-6, bandwidth: 360e9, ranks: 8}
//   network: {latency: 22e-6, bandwidth: 50e9}     # optional, as are host_link and range
//   host_link: {latency: 10e-6, bandwidth: 64e9, ranks: 1}   # ranks: that share it; 1 if left out
//   kernels:
//     experts: {overhead: 41e-6, memory: 0.87, compute: 1.13, row_traffic: 34, tile: 64}
//     dense: {overhead: 20e-6, memory: 0.8, compute: 0.6, row_traffic: 2.7, tile: 64}
//     attention: {overhead: 10e-6, memory: 0.7, compute: 0.4}
//     iteration: 1e-3
//     dispatch: {overhead: 0, latency: 1.06, link: 0.7, serial: 2.2e-6}
//     combine: {overhead: 0, latency: 1.06, link: 0.61, serial: 0.2e-6}
//     bulk_dispatch: {overhead: 26e-6, latency: 0, link: 0.75, serial: 9.7e-12}   # of many tokens
//     bulk_combine: {overhead: 39e-6, latency: 0, link: 0.79, serial: 5.2e-12}
//     errors: {experts: 0.09, exchange: 0.13}     # optional: these are the defaults
//   range: {hidden_from: 2048, hidden_to: 7168, tokens: 16384, ranks: 256, formats: fp8}
//
// Of a machine of cores, `divisible: true` and the key memory.node_bandwidth say that ranks share
// them, memory.cached and memory.cached_node how fast the same bytes are read again ({4e6: 1.1e11,
// …}), `nodes: 4` how many machines of this kind `network` joins, over which ranks are spread
// evenly (elsewhere as many as it takes), network.message what a message takes of a core,
// disk: {bandwidth: 3e9} what a node reads of records at random (models larger than memory), and
// kernels.formats and kernels.formats_of_all_cores may have constants for each format: {bf16:
// {experts: …, dense: …}}.
//
// All values are in seconds, bytes, bytes per second and operations per second; shares are of the
// limit above them, and may exceed 1 where a limit is a measured one.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/weight_format.h"
#include "wideep/status.h"

namespace wideep::cost {

struct Link {
  double latency = 0.0;    // of the smallest exchange between all its ranks
  double bandwidth = 0.0;  // bytes per second that a device sends while it receives as many
  // Of a network between nodes of divisible devices: seconds of a core that a message takes at both
  // ends together.
  double message = 0.0;

  bool operator==(const Link&) const = default;
};

// Matrix products: those of a rank's experts in one layer (expert_cost.h), or a dense one.
struct ProductKernel {
  double overhead = 0.0;     // seconds for each layer
  double memory = 1.0;       // share of the memory's bandwidth
  double compute = 1.0;      // share of the peak
  double row_traffic = 1.0;  // copies of a row that are read or written beside the products
  // The same for the elements between an MLP's products, [intermediate] of a row.
  double activation = 0.0;
  double matrix = 0.0;  // seconds for each matrix of a layer, whatever its size
  int tile = 1;         // rows of an expert are computed in multiples of this

  bool operator==(const ProductKernel&) const = default;
};

// Scores and values over cached positions, in one layer.
struct AttentionKernel {
  double overhead = 0.0;  // seconds
  double memory = 1.0;    // share of the memory's bandwidth, reading keys and values
  double compute = 1.0;   // share of the bf16 peak

  bool operator==(const AttentionKernel&) const = default;
};

// A dispatch or a combine (exchange_cost.h).
struct ExchangeKernel {
  double overhead = 0.0;  // seconds, whatever the link
  double latency = 1.0;   // × that of the link
  double link = 1.0;      // share of the link's bandwidth
  double serial = 0.0;    // seconds for each row, or in bulk each byte, that one processor handles

  bool operator==(const ExchangeKernel&) const = default;
};

// Where products of a format have constants of their own.
struct FormatKernels {
  ProductKernel experts, dense;

  bool operator==(const FormatKernels&) const = default;
};

// How far predictions with these constants are off, as shares of their parts: medians on
// measurements that the constants have not seen (docs/advisor.md).
struct KernelErrors {
  double experts = 0.09, exchange = 0.13;

  bool operator==(const KernelErrors&) const = default;
};

// What a measurement of a model on this machine makes of predictions (measured_advice.h).
struct PartFactors {
  double experts = 1.0, dense = 1.0, exchange = 1.0;

  bool operator==(const PartFactors&) const = default;
};
// Of iterations in which every row is one of a token that is generated, and of prompts. Between
// them by the part of an iteration's rows.
struct IterationFactors {
  PartFactors generating, prompts;

  PartFactors at(double share_of_prompts) const;
  bool operator==(const IterationFactors&) const = default;
};

// What the constants were fitted to. Beyond it nothing is predicted.
struct CalibratedRange {
  double min_hidden = 0.0, max_hidden = 0.0;  // max_hidden 0: unknown, all is predicted
  double max_tokens = 0.0;                    // of a rank's iteration
  int max_ranks = 0;                          // that share the experts
  std::vector<kernels::WeightFormat> formats;

  bool operator==(const CalibratedRange&) const = default;
};

struct Hardware {
  std::string name;
  std::string device;  // for people
  int devices_per_node = 1;
  // Devices are cores: the ranks of a node divide them among each other, several for each rank or
  // several ranks for each core, and share the memory's bandwidth.
  bool divisible = false;
  // Of divisible devices: nodes over which the ranks are spread evenly, joined by `network`.
  int nodes = 1;
  // No part of a file: the nodes are namespaces of one machine, whose cores they share.
  bool nodes_share_cores = false;
  int processors = 1;             // of a device
  double memory_bytes = 0.0;      // of a device
  double memory_bandwidth = 0.0;  // of a device
  double node_bandwidth = 0.0;    // of the memory that divisible devices share
  double disk_bandwidth = 0.0;    // of a node of divisible devices; 0: unknown
  // Reading the same bytes again and again: bytes per second of one device, and of all of a node
  // together, by the number of bytes; caches are faster than memory. Empty: as above, whatever the
  // number.
  std::map<double, double> cached_bandwidth, cached_node_bandwidth;
  std::map<kernels::WeightFormat, double> peak;
  Link node_link;           // between the devices of a node, or of a rack with one switch
  int node_link_ranks = 1;  // devices that it joins
  Link network;             // between those; bandwidth 0: there is none
  // From the host's memory, for experts that move; bandwidth 0: unknown. Devices that share it each
  // get a part while all of them copy.
  Link host_link;
  int host_link_ranks = 1;
  ProductKernel experts;
  ProductKernel dense;  // all other matrices
  std::map<kernels::WeightFormat, FormatKernels> of_formats;
  // The same for a rank that has all cores of a divisible machine: threads do not divide everything
  // evenly. Empty: as for one core.
  std::map<kernels::WeightFormat, FormatKernels> of_all_cores;
  AttentionKernel attention;
  double iteration = 0.0;         // seconds of an iteration beside its layers
  double dispersion = 1.0;        // of routed rows (expert_load.h)
  bool calibrated_dense = false;  // dense, attention and iteration are measured, not assumed
  double turns_loss = 0.0;        // share of the time that ranks lose that take turns on cores
  // Of dense weights that a core's ranks read one after the other, the part that all but the first
  // find in the caches.
  double shared_reads = 0.0;
  CalibratedRange range;
  KernelErrors errors;
  IterationFactors factors;  // no part of a file
  // For few tokens each expert's row travels by itself; for many (bulk) a rank gets a token once.
  ExchangeKernel dispatch, combine;
  ExchangeKernel bulk_dispatch, bulk_combine;

  // Whether its products take weights of this format.
  bool supports(kernels::WeightFormat format) const { return peak.contains(format); }
  // Of one device, and of a node, that reads so many bytes in every iteration.
  double bandwidth_of(double bytes) const;
  double node_bandwidth_of(double bytes) const;
  // Of one device while all copy from the host's memory.
  double host_bandwidth() const { return host_link.bandwidth / host_link_ranks; }
  // Of rows between products: those of divisible devices are in their own caches.
  double row_bandwidth() const {
    return divisible && !cached_bandwidth.empty() ? cached_bandwidth.begin()->second
                                                  : memory_bandwidth;
  }
  const ProductKernel& experts_in(kernels::WeightFormat format) const {
    const auto own = of_formats.find(format);
    return own == of_formats.end() ? experts : own->second.experts;
  }
  const ProductKernel& dense_in(kernels::WeightFormat format) const {
    const auto own = of_formats.find(format);
    return own == of_formats.end() ? dense : own->second.dense;
  }

  bool operator==(const Hardware&) const = default;
};

// Errors (invalid input): the file cannot be read; a missing, unknown or impossible value, with its
// line; values that contradict each other.
Result<Hardware> read_hardware(const std::string& path);
Result<Hardware> parse_hardware(const std::string& text, const std::string& name);

// The text of a file that describes it.
std::string hardware_text(const Hardware& hardware);

// The machines that come with the program, and their names in alphabetical order; h200 is taken for
// h200_sxm, and the like. Errors (invalid input): there is none of this name.
Result<Hardware> shipped_hardware(std::string_view name);
std::vector<std::string> shipped_hardware_names();

}  // namespace wideep::cost
