// SPDX-License-Identifier: Apache-2.0
//
// The map speculative_config of the YAML file, with TensorRT-LLM's keys (tensorrt_llm/llmapi/
// llm_args.py):
//
//   speculative_config:
//     decoding_type: NGram        # or SA, AUTO, auto
//     max_draft_len: 5
//     max_matching_ngram_size: 3
//
// decoding_type:
//   NGram   what followed the last tokens before, in any request (TensorRT-LLM's pool)
//   SA      what followed the longest repeated end of the text (a suffix automaton)
//   AUTO    TensorRT-LLM's choice of NGram's sizes by max_batch_size
//   auto    wideep's own: SA, with as many drafts in each step as are expected to pay
// Others of TensorRT-LLM's are refused by name.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/yaml.h"

namespace wideep::parallel {

struct SpeculativeConfig {
  enum class Type { kNgram, kSuffix, kAuto };  // kAuto: `auto`; AUTO has become kNgram, or nothing

  Type type = Type::kNgram;
  int64_t max_draft_len = 0;  // tokens of a request in a step, at least 1
  int64_t max_matching_ngram_size = 2;
  bool is_use_oldest = true;
  bool is_public_pool = true;
  // Above so many running requests of a rank nothing is drafted.
  std::optional<int64_t> max_concurrency;
  // Batch size → draft length: the entry with the largest size that the batch reaches.
  std::map<int64_t, int64_t> draft_len_schedule;
  // Nothing is drafted any more once the mean acceptance length of so many completed requests is
  // below the threshold.
  std::optional<int64_t> acceptance_window;
  double acceptance_length_threshold = 0.0;
  int64_t max_pool_bytes = int64_t{64} << 20;  // wideep's own: of a rank
};

// Reads the map. max_batch_size: for AUTO; nullopt: not in the file. nullopt is returned for AUTO
// with larger batches than it drafts for, with a note. Errors are recorded in the document.
std::optional<SpeculativeConfig> take_speculative(formats::YamlMap map,
                                                  std::optional<int64_t> max_batch_size,
                                                  std::vector<std::string>* notes);

}  // namespace wideep::parallel
