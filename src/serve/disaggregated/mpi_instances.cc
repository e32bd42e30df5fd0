// SPDX-License-Identifier: Apache-2.0
#include "disaggregated/mpi_instances.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::disaggregated {
namespace {

using server::RouterMember;

// "2 × 4 of context_servers"
std::string term(const std::vector<MpiInstance>& all, const char* part) {
  const auto count = std::ranges::count(all, part, &MpiInstance::part);
  if (count == 0) return "";
  const auto first = std::ranges::find(all, part, &MpiInstance::part);
  return fmt::format("{} × {} of {}", count, first->num_ranks, part);
}

}  // namespace

std::vector<MpiInstance> mpi_instances(const DisaggConfig& config) {
  std::vector<MpiInstance> all;
  for (const RouterMember& server : config.members()) {
    const bool is_context = server.role != engine::Role::kDecode;
    const ServerSection& section = is_context ? config.context : config.generation;
    const parallel::ParallelSizes& sizes = section.workers.sizes;
    all.push_back({.server = server,
                   .part = is_context ? "context_servers" : "generation_servers",
                   .index = static_cast<int>(all.size()),
                   .num_ranks = sizes.tp * sizes.pp * sizes.cp});
  }
  return all;
}

Result<MpiInstance> instance_of_rank(const DisaggConfig& config, int rank, int num_ranks) {
  const std::vector<MpiInstance> all = mpi_instances(config);
  if (all.empty()) {
    return invalid_input(fmt::format(
        "{}: expected urls of context_servers and generation_servers, found disagg_cluster: start "
        "its servers one by one, with --config {}:context_servers",
        config.name, config.name));
  }
  int sum = 0;
  for (const MpiInstance& each : all) sum += each.num_ranks;
  if (sum != num_ranks) {
    const std::string context = term(all, "context_servers");
    const std::string generation = term(all, "generation_servers");
    return invalid_input(fmt::format(
        "{}: expected {} ranks ({}{}{}), found {}; start as many (mpirun -n {})", config.name, sum,
        context, context.empty() || generation.empty() ? "" : " + ", generation, num_ranks, sum));
  }
  int first = 0;
  for (const MpiInstance& each : all) {
    if (rank < first + each.num_ranks) return each;
    first += each.num_ranks;
  }
  return all.back();  // not reached: rank < num_ranks
}

}  // namespace wideep::disaggregated
