// SPDX-License-Identifier: Apache-2.0
#include "sampler_options.h"

#include <limits>

#include "base/try.h"
#include "formats/yaml.h"

namespace wideep::tools {

Result<engine::SamplingParams> read_sampler_options(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document, formats::YamlDocument::read(path));
  formats::YamlMap root = document.root();
  engine::SamplingParams sampling;
  const auto number = [&](const char* key, float fallback, formats::NumberRange range) {
    return static_cast<float>(root.number_or(key, double{fallback}, range));
  };
  const bool draws = root.has("top_k") || root.has("top_p") || root.has("min_p");
  sampling.temperature = number("temperature", draws ? 1.0f : 0.0f, {.min = 0.0, .max = 100.0});
  sampling.top_k = static_cast<int>(
      root.integer_or("top_k", 0, {.min = 0, .max = std::numeric_limits<int>::max()}));
  sampling.top_p = number("top_p", 1.0f, {.min = 1e-6, .max = 1.0});
  sampling.min_p = number("min_p", 0.0f, {.min = 0.0, .max = 1.0});
  sampling.repetition_penalty = number("repetition_penalty", 1.0f, {.min = 1e-3, .max = 100.0});
  sampling.presence_penalty = number("presence_penalty", 0.0f, {.min = -2.0, .max = 2.0});
  sampling.frequency_penalty = number("frequency_penalty", 0.0f, {.min = -2.0, .max = 2.0});
  sampling.seed = static_cast<uint64_t>(root.integer_or("seed", 0, {.min = 0}));
  root.integer_or("n", 1, {.min = 1, .max = 1});
  root.integer_or("best_of", 1, {.min = 1, .max = 1});
  if (root.boolean_or("use_beam_search", false)) {
    root.complain("use_beam_search", "expected false, there is no beam search; found true");
  }
  root.refuse_unknown_keys();
  WIDEEP_TRY(document.status());
  return sampling;
}

}  // namespace wideep::tools
