// SPDX-License-Identifier: Apache-2.0
//
// --sampler-options of trtllm-bench: a YAML file with sampling parameters, under the names that
// TensorRT-LLM's SamplingParams has.
#pragma once

#include <string>

#include "schedule/request.h"
#include "wideep/status.h"

namespace wideep::tools {

// temperature, top_k, top_p, min_p, seed, repetition_penalty, presence_penalty, frequency_penalty;
// n and best_of must be 1, use_beam_search false. As there, top_k, top_p or min_p without
// temperature means temperature 1; without any of the four decoding is greedy. Errors (invalid
// input): the file cannot be read; another key; a value out of range.
Result<engine::SamplingParams> read_sampler_options(const std::string& path);

}  // namespace wideep::tools
