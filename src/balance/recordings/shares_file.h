// SPDX-License-Identifier: Apache-2.0
//
// The file of shares that goes with a placement file:
//
//   {"3": [1, 0.5, 0.125, ...], "4": [...]}
//
// For each MoE layer of the model, by its index, the share of its expert's tokens that each global
// slot receives; num_slots numbers, which sum to 1 over the slots of an expert. It is a separate
// file because TRT's strict reader of moe_load_balancer.yaml accepts no other keys.
//
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>

#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::recordings {

// Layers ascending, one line each; numbers in the shortest form that reads back as the same double.
// Equal shares give equal bytes.
std::string shares_text(const std::map<int, balance::Shares>& shares);

// Writes the file completely or not at all. Errors (failed): as formats::write_file.
Status write_shares(const std::string& path, const std::map<int, balance::Shares>& shares);

}  // namespace wideep::recordings
