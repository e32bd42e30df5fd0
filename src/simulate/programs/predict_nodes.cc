// SPDX-License-Identifier: Apache-2.0
//
// predict_nodes CONFIG HARDWARE FORMAT POSITIONS RANKS STREAMS [GBPS LATENCY_US]: seconds of an
// iteration of so many streams on ranks that are the nodes of a network, each with one thread, and
// that share the cores of the machine of HARDWARE; without a network, on one node of it. For
// bench/nodes/compare_nodes.py, which measures the same on one machine.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "formats/files.h"
#include "model/config.h"
#include "run/layouts.h"
#include "simulate/advise.h"
#include "simulate/control_plane.h"

using namespace wideep;            // NOLINT(google-build-using-namespace): a program
using namespace wideep::simulate;  // NOLINT(google-build-using-namespace)

namespace {

template <typename T>
T or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "error: {}\n", result.status().message());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 && argc != 9) {
    fmt::print(stderr,
               "usage: {} CONFIG HARDWARE FORMAT POSITIONS RANKS STREAMS [GBPS LATENCY_US]\n",
               argv[0]);
    return 2;
  }
  const model::ModelConfig config =
      or_exit(model::parse_model_config(or_exit(formats::read_file(argv[1])), argv[1]));
  Hardware hardware = or_exit(read_hardware(argv[2]));
  const auto format = kernels::weight_format_from_name(argv[3]);
  const int positions = std::atoi(argv[4]), ranks = std::atoi(argv[5]),
            streams = std::atoi(argv[6]);
  if (!format || !hardware.supports(*format) || positions < 1 || ranks < 1 || streams < 1) {
    fmt::print(stderr,
               "error: expected a format of {}, and numbers of positions, ranks and streams\n",
               argv[2]);
    return 2;
  }
  if (argc == 9) {
    hardware.nodes = ranks;
    hardware.nodes_share_cores = true;
    hardware.network = {.latency = std::atof(argv[8]) * 1e-6,
                        .bandwidth = std::atof(argv[7]) * 1e9 / 8};
  }
  if (ranks == 1) hardware.devices_per_node = 1;  // one thread
  const balance::ModelLoad load = uniform_load(config.routing.num_experts, run::moe_layers(config));
  const Layout layout{
      .ep = ranks, .num_slots = slots_for(config.routing.num_experts, 0, ranks), .format = *format};
  const StepCost cost = or_exit(step_cost(hardware, config, load, load, layout, {}));
  std::vector<measure::StepShape> batches;
  for (int rank = 0; rank < ranks; ++rank) {
    const int own = streams / ranks + (rank < streams % ranks ? 1 : 0);
    if (own > 0) batches.push_back(measure::decode_step(own, positions, 0));
  }
  fmt::print("{:.6g}\n", cost.step(batches).seconds());
  return 0;
}
