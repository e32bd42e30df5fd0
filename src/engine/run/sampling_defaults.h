// SPDX-License-Identifier: Apache-2.0
//
// How tokens are drawn for requests that do not say it: as the model's own files have it,
// generation_config.json as transformers and vLLM read it, or general.sampling.* of a GGUF file.
//
//   do_sample: false        temperature 0
//   temperature, top_k, top_p, min_p, repetition_penalty
//   max_new_tokens          the most that any request may generate, as vLLM has it
//
// Whatever else of the file would change texts is not followed, but named.
//
// Thread safety: a plain value and pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/request.h"
#include "wideep/status.h"

namespace wideep::run {

struct SamplingDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
  std::optional<int> max_tokens;
  std::string source;                          // the file
  std::vector<std::string> not_followed = {};  // "num_beams 4"

  // Sets what is given here.
  void apply(engine::SamplingParams* params) const;
  // For the user; none: there is nothing to say.
  std::vector<std::string> lines() const;
};

// from: "auto": of the model, a directory or a GGUF file; "none": there are none; else a directory
// with a generation_config.json. Errors (invalid input): a value that is out of range, with file
// and key; a directory without the file.
Result<SamplingDefaults> read_sampling_defaults(const std::string& model_dir,
                                                const std::string& from);

}  // namespace wideep::run
