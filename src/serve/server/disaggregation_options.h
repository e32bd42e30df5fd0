// SPDX-License-Identifier: Apache-2.0
//
// How a router divides requests between servers that compute prompts and servers that answer
// (wideep disaggregated). Names and meanings are TensorRT-LLM's (disagg_config.yaml) where it has
// them.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <optional>

namespace wideep::server {

// In which order the two servers get a request. kGenerationFirst: at once, so that pages travel
// while later ones are computed.
enum class ScheduleStyle : uint8_t { kContextFirst, kGenerationFirst };

// How a server is chosen among those of a role. kLoadBalancing: the one with the least work.
// kKvCacheAware: with the least work, its known pages of the prompt considered.
enum class PlacementRule : uint8_t { kRoundRobin, kLoadBalancing, kKvCacheAware };

struct DisaggregationOptions {
  ScheduleStyle style = ScheduleStyle::kGenerationFirst;
  PlacementRule context_rule = PlacementRule::kKvCacheAware;
  PlacementRule generation_rule = PlacementRule::kKvCacheAware;
  int max_retries = 1;  // of the prefill part of a request, at other servers
  // Rules instead of the choice by predicted cost. A prompt of at most so many tokens is computed
  // where it is answered.
  std::optional<int64_t> max_local_prefill_length;
  // Dynamo's: of what the answering server does not know of the prompt, tokens, and its share of
  // the prompt; below either, the prompt is computed there.
  std::optional<int64_t> eff_isl_threshold;
  std::optional<double> eff_isl_ratio_threshold;
  // Every prompt goes through both servers: for tests and measurements.
  bool always = false;
};

}  // namespace wideep::server
