// SPDX-License-Identifier: Apache-2.0
//
// predict_nodes CONFIG HARDWARE FORMAT POSITIONS experts|stages RANKS STREAMS [GBPS LATENCY_US
//   MESSAGE_US]
//
// Seconds of an iteration of so many streams on ranks that share the experts, or each have a stage
// of the layers. The ranks are the nodes of a network, each with one thread, and share the cores of
// the machine of HARDWARE; without a network, they are on one node of it. For
// bench/nodes/compare_nodes.py, which measures the same on one machine.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "advise/advise.h"
#include "formats/files.h"
#include "measure/predict/control_plane.h"
#include "model/config/config.h"
#include "model/model_division.h"

using namespace wideep;           // NOLINT(google-build-using-namespace): a program
using namespace wideep::measure;  // NOLINT(google-build-using-namespace)

namespace {

template <typename T>
T or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "error: {}\n", result.status().message());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8 && argc != 11) {
    fmt::print(stderr,
               "usage: predict_nodes CONFIG HARDWARE FORMAT POSITIONS experts|stages RANKS STREAMS "
               "[GBPS LATENCY_US MESSAGE_US]\n");
    return 2;
  }
  const model::ModelConfig config =
      or_exit(model::parse_model_config(or_exit(formats::read_file(argv[1])), argv[1]));
  cost::Hardware hardware = or_exit(cost::read_hardware(argv[2]));
  const auto format = kernels::weight_format_from_name(argv[3]);
  const std::string divided = argv[5];
  const bool has_stages = divided == "stages";
  const int positions = std::atoi(argv[4]), ranks = std::atoi(argv[6]),
            streams = std::atoi(argv[7]);
  if (!format || !hardware.supports(*format) || (!has_stages && divided != "experts") ||
      positions < 1 || ranks < 1 || streams < 1) {
    fmt::print(stderr,
               "error: expected a format of {}, 'experts' or 'stages', and numbers of positions, "
               "ranks and streams\n",
               argv[2]);
    return 2;
  }
  // One stream keeps one stage busy at a time, with a core of its own.
  const bool takes_turns = !has_stages || streams > 1;
  if (argc == 11 || !takes_turns) {
    hardware.nodes = ranks;
    hardware.nodes_share_cores = takes_turns;
    hardware.network = hardware.node_link;
  }
  if (argc == 11) {
    hardware.network = {.latency = std::atof(argv[9]) * 1e-6,
                        .bandwidth = std::atof(argv[8]) * 1e9 / 8,
                        .message = std::atof(argv[10]) * 1e-6};
  }
  if (ranks == 1 || !takes_turns) hardware.devices_per_node = 1;  // one thread
  const balance::ModelLoad load =
      cost::uniform_load(config.routing.num_experts, model::moe_layers(config));
  const int ep = has_stages ? 1 : ranks;
  const cost::Layout layout{.ep = ep,
                            .stages = ranks / ep,
                            .num_slots = slots_for(config.routing.num_experts, 0, ep),
                            .format = *format};
  const cost::StepCost cost = or_exit(advise::step_cost(
      {.hardware = hardware, .config = config, .planned = load, .judged = load}, layout));
  std::vector<model::StepShape> batches;
  for (int part = 0; part < (has_stages ? 1 : ranks); ++part) {
    const int own = streams / ranks + (part < streams % ranks ? 1 : 0);
    if (own > 0) batches.push_back(model::decode_step(own, positions, 0));
  }
  fmt::print("{:.6g}\n", cost.step(batches).seconds());
  return 0;
}
