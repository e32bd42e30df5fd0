// SPDX-License-Identifier: Apache-2.0
//
// Datasets of requests for benchmarks, made, written and read in the format of `trtllm-bench
// prepare-dataset`, one JSON object per line:
//
//   {"task_id": 0, "input_ids": [5, 6, …], "output_tokens": 7}       or "prompt": "…"
//
// Thread safety: functions without state; they read and write files.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "measure/serving/text_records.h"
#include "tokenizer/tokenizer.h"
#include "wideep/status.h"

namespace wideep::measure {

struct DatasetRequest {
  std::variant<std::string, std::vector<int32_t>> prompt;  // text, or token ids
  int output_tokens = 1;
};

// Errors (invalid input) name file and line.
Result<std::vector<DatasetRequest>> read_dataset(const std::string& path);
// Errors (failed): the file cannot be written.
// The text of the file.
std::string dataset_text(const std::vector<DatasetRequest>& requests);
Status write_dataset(const std::string& path, const std::vector<DatasetRequest>& requests);

// Distribution of a number of tokens: max(1, ceil(N(mean, stdev))), or uniform in [least, most].
struct NormalLength {
  double mean = 0.0;
  double stdev = 0.0;
};
struct UniformLength {
  int min = 1;
  int max = 1;
};
using Length = std::variant<NormalLength, UniformLength>;

// Prompts of random token ids in [min_id, min_id + num_ids).
struct RandomDataset {
  int count = 1;
  Length input;
  Length output;
  int32_t min_id = 0;
  int32_t num_ids = 1;
  uint64_t seed = 420;
};
std::vector<DatasetRequest> random_dataset(const RandomDataset& options);

// Reads texts from the key `key` of a data set's records and tokenises them, in order: at most
// `count` texts; 0: all. Texts with more than max_input tokens are left out; 0: none is.
struct RealDataset {
  RecordSource source;
  std::string key = "prompt";
  // Before each text, with a space between: `prompt`, or what the record has under prompt_key. At
  // most one of the two.
  std::string prompt, prompt_key;
  // Answers are as long as the text under this key; "": as `output` says.
  std::string output_key;
  int count = 1;
  int max_input = 0;
  Length output;
  uint64_t seed = 420;
};
// Errors (invalid input): a file cannot be read; a record without a key; no text is left.
Result<std::vector<DatasetRequest>> real_dataset(const RealDataset& options,
                                                 const tokenizer::Tokenizer& tokenizer);

}  // namespace wideep::measure
