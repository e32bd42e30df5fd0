// SPDX-License-Identifier: Apache-2.0
//
// Checks the maps between experts and slots that an engine keeps (physical_to_logical,
// logical_to_physical, replica counts), and the tokens that it counted on both sides. Maps that
// disagree send tokens to the weights of another expert: no error, only wrong text.
//
//   ExpertMaps maps{.num_experts = 256, .ep_size = 32, .slot_to_expert = row};
//   maps.expert_to_slots = inverse;
//   for (const MapFault& fault : check_maps(maps)) puts(fault.text.c_str());
//
// Thread safety: plain values; a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::balance {

// What an engine has of one layer. Any values: finding wrong ones is the purpose. An empty vector
// means that it is not known.
struct ExpertMaps {
  int num_experts = 0;                                // E, ≥ 1
  int ep_size = 0;                                    // R; 0: not known
  std::vector<int64_t> slot_to_expert;                // [S] physical_to_logical; −1: not in use
  std::vector<std::vector<int64_t>> expert_to_slots;  // [E] logical_to_physical; −1: padding
  std::vector<int64_t> replicas;                      // [E] of each expert
  std::vector<int64_t> chosen_slot;       // [E] the slot that a rank uses for an expert; −1: none
  std::vector<int64_t> tokens_of_slot;    // [S] that slots received
  std::vector<int64_t> tokens_of_expert;  // [E] that the router chose
};

enum class MapFaultKind {
  kLength,          // a map has another length than the number of experts or slots
  kNoSuchExpert,    // a slot holds an id that is no expert
  kNoSuchSlot,      // an expert lists an id that is no slot
  kExpertWithout,   // an expert has no slot
  kStale,           // an expert lists a slot that holds another one
  kMissingReplica,  // a slot holds an expert that does not list it
  kListedTwice,     // an expert lists a slot twice
  kCount,           // a replica count differs from the slots that hold the expert
  kTokens,          // an expert's slots received another number of tokens than it was chosen for
  kTokensById,      // slots received the tokens of the experts of the same number
  kOtherMap,        // two ranks have different maps
  kSameRank,        // two replicas of an expert on one rank: allowed, and of no use
};

// "missing-replica", ...
std::string_view name_of(MapFaultKind kind);

struct MapFault {
  MapFaultKind kind;
  int number = 1;    // how many like it the layer has; text describes the first one
  std::string text;  // one line, without the layer and without a full stop
  // False for what an engine can serve with: kSameRank.
  bool is_error() const { return kind != MapFaultKind::kSameRank; }
};

// At most one fault of each kind, errors first. None: the maps agree.
std::vector<MapFault> check_maps(const ExpertMaps& maps);

// Compares slot_to_expert with that of another rank or file, `other_name` in the text: all ranks
// must agree. (Other maps may differ: an engine may list the nearest replicas only.) nullopt:
// equal.
std::optional<MapFault> compare_maps(const ExpertMaps& maps, const ExpertMaps& other,
                                     std::string_view other_name);

}  // namespace wideep::balance
