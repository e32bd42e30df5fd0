// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace wideep::tests {

// A machine whose constants are bound to no range: the tests' model is smaller than what those of
// GPUs were fitted to.
inline constexpr const char* kMachine = R"(name: machine
devices_per_node: 8
processors: 132
memory: {bytes: 80e9, bandwidth: 3.35e12}
peak: {bf16: 989e12}
node_link: {latency: 10e-6, bandwidth: 360e9, ranks: 8}
kernels:
  experts: {overhead: 4e-5, memory: 0.9, compute: 1, row_traffic: 30, tile: 64}
  dense: {overhead: 2e-5, memory: 0.8, compute: 0.6, row_traffic: 3, tile: 64}
  attention: {overhead: 1e-5, memory: 0.7, compute: 0.4}
  iteration: 1e-3
  dispatch: {overhead: 0, latency: 1, link: 0.7, serial: 2e-6}
  combine: {overhead: 0, latency: 1, link: 0.6, serial: 2e-7}
  bulk_dispatch: {overhead: 3e-5, latency: 0, link: 0.7, serial: 1e-11}
  bulk_combine: {overhead: 4e-5, latency: 0, link: 0.8, serial: 5e-12}
)";

}  // namespace wideep::tests
