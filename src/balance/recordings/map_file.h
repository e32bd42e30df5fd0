// SPDX-License-Identifier: Apache-2.0
//
// Reads the maps between experts and slots that engines dump, for check_maps
// (wideep/expert_maps.h):
//
//   *.json          one object with any of these keys beside physical_to_logical_map; [L] comes
//                   first and is absent for one layer:
//                     physical_to_logical_map [L, S]                    vLLM, SGLang, DeepSeek
//                     logical_to_physical_map [L, E, X]                 vLLM, DeepSeek
//                     logical_to_all_physical_map [L, E, X]             SGLang
//                     logical_replica_count [L, E]                      vLLM
//                     logical_to_all_physical_map_num_valid [L, E]      SGLang
//                     expert_count [L, E]                               DeepSeek
//                     logical_to_rank_dispatch_physical_map [L, E]      SGLang, static dispatch
//                     physical_count [L, S], logical_count [L, E]       tokens, SGLang's recorder
//   *.yaml, *.yml   moe_load_balancer.yaml of TensorRT-LLM
//
// Values are only checked to be integers here: what they mean is what check_maps checks.
//
// Thread safety: pure functions of their arguments and the file.
#pragma once

#include <string>
#include <vector>

#include "wideep/expert_maps.h"
#include "wideep/status.h"

namespace wideep::recordings {

struct ModelMaps {
  std::vector<int> layers;                // [L] layer indices, ascending
  std::vector<balance::ExpertMaps> maps;  // [L]; num_experts and ep_size are set
  std::vector<std::string> found;         // keys that were read
  std::vector<std::string> not_read;      // keys that have another meaning, or none
  // num_experts was neither given nor in the file: it is the largest id + 1, so that a last expert
  // without a slot cannot be seen.
  bool guessed_experts = false;
};

// num_experts: 0: as the file says. ep_size: 0: not known.
// Errors (invalid input): not readable or not of this form, other file names, layers that differ in
// number.
Result<ModelMaps> read_map_file(const std::string& path, int num_experts, int ep_size);
Result<ModelMaps> parse_map_json(std::string_view text, const std::string& name, int num_experts,
                                 int ep_size);

}  // namespace wideep::recordings
