// SPDX-License-Identifier: Apache-2.0
//
// wideep/expert_maps.h for Python: module wideep._expert_maps, for one layer at a time.
#include "wideep/expert_maps.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace wideep::balance;

namespace {

using Row = std::vector<int64_t>;

// kind, number, text, is_error
std::vector<std::tuple<std::string, int, std::string, bool>> check(int num_experts, int ep_size,
                                                                   Row slot_to_expert,
                                                                   std::vector<Row> expert_to_slots,
                                                                   Row replicas, Row tokens_of_slot,
                                                                   Row tokens_of_expert) {
  const ExpertMaps maps{.num_experts = num_experts,
                        .ep_size = ep_size,
                        .slot_to_expert = std::move(slot_to_expert),
                        .expert_to_slots = std::move(expert_to_slots),
                        .replicas = std::move(replicas),
                        .tokens_of_slot = std::move(tokens_of_slot),
                        .tokens_of_expert = std::move(tokens_of_expert)};
  std::vector<std::tuple<std::string, int, std::string, bool>> found;
  for (const MapFault& fault : check_maps(maps)) {
    found.emplace_back(name_of(fault.kind), fault.number, fault.text, fault.is_error());
  }
  return found;
}

}  // namespace

NB_MODULE(_expert_maps, module) { module.def("check", &check); }
