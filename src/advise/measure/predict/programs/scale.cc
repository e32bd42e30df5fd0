// SPDX-License-Identifier: Apache-2.0
//
// scale CONFIG STATISTICS OUTPUT.csv [MOST_RANKS]: what a rank costs from EP 2 to EP 1,024. First
// an iteration of the model on the shipped GPUs, predicted; then the control plane, run for real on
// this machine: constants from up to 64 ranks, and what they say of more beside what is measured.
// docs/scale.md explains the columns.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "advise/advise.h"
#include "advise/rank_memory.h"
#include "formats/files.h"
#include "measure/predict/control_plane.h"
#include "model/model_division.h"
#include "recordings/statistics_load.h"
#include "recordings/statistics_reader.h"

using namespace wideep;           // NOLINT(google-build-using-namespace): a program
using namespace wideep::measure;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int kSpareSlots = 32;
constexpr int kBatch = 64;            // requests of a rank
constexpr int kContext = 1536;        // positions of each
constexpr int kFittedRanks = 64;      // at most
constexpr int kMeasuredCalls = 4096;  // of all ranks together

template <typename T>
T or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "error: {}\n", result.status().message());
  std::exit(2);
}

balance::ModelLoad load_of(const std::string& path, const model::ModelConfig& config) {
  const balance::ModelLoad all = recordings::model_load(or_exit(recordings::read_statistics(path)));
  const std::vector<int> layers = model::moe_layers(config);
  balance::ModelLoad load{.num_experts = all.num_experts};
  for (size_t i = 0; i < all.layers.size(); ++i) {
    if (!std::ranges::binary_search(layers, all.layers[i])) continue;
    load.layers.push_back(all.layers[i]);
    load.load.push_back(all.load[i]);
  }
  return load;
}

// One row for each part of an iteration, so that the file needs no other program to be read.
void predict(const std::string& gpu, const model::ModelConfig& config,
             const balance::ModelLoad& load, int max_ranks, std::ofstream& csv) {
  const cost::Hardware hardware = or_exit(cost::shipped_hardware(gpu));
  fmt::print("\n{}: {} requests of a rank with {} positions, predicted, ms of an iteration\n", gpu,
             kBatch, kContext);
  fmt::print(
      "   EP slots memory GB attention  dense experts dispatch combine   all  tokens/s a rank\n");
  for (int ranks = 2; ranks <= max_ranks; ranks *= 2) {
    const cost::Layout layout{.ep = ranks,
                              .num_slots = slots_for(load.num_experts, kSpareSlots, ranks),
                              .format = kernels::WeightFormat::kFp8};
    const cost::StepCost cost = or_exit(advise::step_cost(
        {.hardware = hardware, .config = config, .planned = load, .judged = load}, layout));
    const cost::StepTime step = cost.step(model::decode_step(kBatch, kContext, 0));
    const advise::RankMemory memory = advise::memory_of(config, layout);
    const double bytes = memory.weights + memory.token * kBatch * kContext;
    fmt::print("{:5} {:5} {:7.0f}{:3} {:9.2f} {:6.2f} {:7.2f} {:8.2f} {:7.2f} {:5.1f} {:9.0f}\n",
               ranks, layout.num_slots, bytes / 1e9, bytes > hardware.memory_bytes ? " !" : "",
               step.attention * 1e3, step.dense * 1e3, step.experts * 1e3, step.dispatch * 1e3,
               step.combine * 1e3, step.seconds() * 1e3, kBatch / step.seconds());
    csv << fmt::format(
        "{0},{1},experts,{2}\n{0},{1},dispatch,{3}\n{0},{1},combine,{4}\n"
        "{0},{1},other,{5}\n{0},{1},bytes,{6}\n",
        gpu, ranks, step.experts, step.dispatch, step.combine,
        step.attention + step.dense + step.fixed + step.joint, bytes);
  }
}

// A cost that is fitted to few ranks, and predicted for more.
struct Part {
  const char* name;
  double ControlCost::* cost;
  double unit;  // of the table, in seconds
  LinearCost fit = {};
};

void fit(const std::vector<ControlCost>& found, Part* part) {
  std::vector<int> ranks;
  std::vector<double> costs;
  for (const ControlCost& each : found) {
    if (each.num_ranks > kFittedRanks || each.num_ranks < 8) continue;
    ranks.push_back(each.num_ranks);
    costs.push_back(each.*(part->cost));
  }
  if (ranks.size() >= 2) part->fit = fit_linear(ranks, costs);
}

void run_control(const balance::ModelLoad& load, int top_k, int max_ranks, std::ofstream& csv) {
  std::vector<ControlCost> found;
  for (int ranks = 2; ranks <= max_ranks; ranks *= 2) {
    // Many calls where they are short.
    const ControlOptions options{.num_ranks = ranks,
                                 .spare_slots = kSpareSlots,
                                 .top_k = top_k,
                                 .calls = std::clamp(kMeasuredCalls / ranks, 8, 256)};
    found.push_back(or_exit(run_control_plane(load, options)));
    fmt::print(stderr, "{} ranks\n", ranks);
  }
  // What ranks need beyond the sizes is fitted too: stacks, and tables of the peers.
  for (ControlCost& each : found) each.memory -= each.memory_of_sizes;
  Part memory{"memory MB", &ControlCost::memory, 1e6};
  fit(found, &memory);
  for (ControlCost& each : found) each.memory += each.memory_of_sizes;
  Part parts[] = {{"agree us", &ControlCost::agree, 1e-6},
                  {"split us", &ControlCost::split, 1e-6},
                  {"exchange us", &ControlCost::exchange, 1e-6}};
  for (Part& part : parts) fit(found, &part);
  fmt::print(
      "\nthe control plane on this machine: measured (predicted from 8 to {} ranks), a rank\n"
      "   EP slots imbalance  plan a layer ms",
      kFittedRanks);
  for (const Part& part : parts) fmt::print(" {:>21}", part.name);
  fmt::print(" {:>19}\n", memory.name);
  for (const ControlCost& each : found) {
    fmt::print("{:5} {:5} {:9.3f} {:16.3f}", each.num_ranks, each.num_slots, each.imbalance,
               each.plan * 1e3);
    for (const Part& part : parts) {
      const double measured = each.*part.cost, predicted = part.fit.at(each.num_ranks);
      fmt::print(" {:9.2f} ({:9.2f})", measured / part.unit, predicted / part.unit);
      csv << fmt::format("here,{},{},{},{}\n", each.num_ranks, part.name, measured, predicted);
    }
    const double predicted = each.memory_of_sizes + memory.fit.at(each.num_ranks);
    fmt::print(" {:8.2f} ({:8.2f})\n", each.memory / 1e6, predicted / 1e6);
    csv << fmt::format("here,{},memory,{},{}\n", each.num_ranks, each.memory, predicted);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: scale CONFIG STATISTICS OUTPUT.csv [MOST_RANKS]\n");
    return 2;
  }
  const std::string text = or_exit(formats::read_file(argv[1]));
  const model::ModelConfig config = or_exit(model::parse_model_config(text, argv[1]));
  const balance::ModelLoad load = load_of(argv[2], config);
  const int max_ranks = argc > 4 ? std::atoi(argv[4]) : 1024;
  std::ofstream csv(argv[3]);
  csv << "where,ranks,what,value,predicted\n";
  for (const char* gpu : {"h100_sxm", "gb200"}) predict(gpu, config, load, max_ranks, csv);
  run_control(load, config.routing.top_k, max_ranks, csv);
}
