// SPDX-License-Identifier: Apache-2.0
//
// The map speculative_config of the YAML file, with TensorRT-LLM's keys (tensorrt_llm/llmapi/
// llm_args.py):
//
//   speculative_config:
//     decoding_type: NGram        # or SA, MTP, AUTO, auto
//     max_draft_len: 5
//     max_matching_ngram_size: 3
//
// decoding_type:
//   NGram   what followed the last tokens before, in any request (TensorRT-LLM's pool)
//   SA      what followed the longest repeated end of the text (a suffix automaton)
//   MTP     the model's own prediction layer, applied max_draft_len times as a chain; with sa_config
//           also SA, where its match has `threshold` tokens
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

// Between the tokens that begin and end a model's thinking, a draft is kept in the place of the
// likeliest token if it is one of the topk likeliest, and less likely than that one by at most
// delta (a difference of probabilities, as TensorRT-LLM's blog has it; its documentation also
// speaks of log probabilities).
struct RelaxedAcceptance {
  int64_t topk = 1;
  double delta = 0.0;
  int64_t begin_token = 128798;  // DeepSeek-R1's
  int64_t end_token = 128799;

  bool operator==(const RelaxedAcceptance&) const = default;
};

struct SpeculativeConfig {
  // kAuto: `auto`; AUTO has become kNgram, or nothing.
  enum class Type { kNgram, kSuffix, kMtp, kAuto };

  Type type = Type::kNgram;
  int64_t max_draft_len = 0;  // tokens of a request in a step, at least 1
  int64_t max_matching_ngram_size = 2;
  bool is_use_oldest = true;
  bool is_public_pool = true;
  // Above so many running requests of a rank nothing is drafted.
  std::optional<int64_t> max_concurrency;
  // Batch size → draft length: the entry with the largest size that the batch reaches
  // (TensorRT-LLM's newer form, by the largest batch of each length, has become this).
  std::map<int64_t, int64_t> draft_len_schedule;
  // Nothing is drafted any more once the mean acceptance length of so many completed requests is
  // below the threshold.
  std::optional<int64_t> acceptance_window;
  double acceptance_length_threshold = 0.0;
  // Likewise once the drafts of so many steps have been right at a mean rate below the threshold.
  std::optional<int64_t> acceptance_rate_window;
  double acceptance_rate_threshold = 0.0;      // 0 … 1
  int64_t max_pool_bytes = int64_t{64} << 20;  // wideep's own: of a rank
  // MTP only: a layer of the file for each draft, as always if the file has several.
  bool use_mtp_vanilla = false;
  // MTP only: SA's drafts come first where their match has so many tokens (sa_config).
  std::optional<int64_t> sa_spec_threshold;
  // MTP only; changes answers (use_relaxed_acceptance_for_thinking).
  std::optional<RelaxedAcceptance> relaxed;
};

// Reads the map. max_batch_size: for AUTO; nullopt: not in the file. nullopt is returned for AUTO
// with larger batches than it drafts for, with a note. Errors are recorded in the document.
std::optional<SpeculativeConfig> take_speculative(formats::YamlMap map,
                                                  std::optional<int64_t> max_batch_size,
                                                  std::vector<std::string>* notes);

}  // namespace wideep::parallel
