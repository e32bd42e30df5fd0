// SPDX-License-Identifier: Apache-2.0
// Refuses valid settings that wideep does not support yet.
#include <fmt/format.h>

#include <array>

#include "parallel/parallel_config.h"

namespace wideep::parallel {
namespace {

struct Limit {
  bool exceeded;
  std::string message;
};

std::string not_built(const char* key, int found, const char* what) {
  return fmt::format("{}: {} is not supported yet: expected 1, found {}", key, what, found);
}

std::array<Limit, 1> size_limits(const ParallelSizes& sizes) {
  return {{
      {sizes.moe_cluster > 1,
       not_built("moe_cluster_parallel_size", sizes.moe_cluster, "a cluster of MoE ranks")},
  }};
}

std::array<Limit, 1> feature_limits(const ParallelConfig& config) {
  // Ranks take turns of whole pages, so that no page is divided between ranks.
  const int64_t turn = config.cp_config ? config.cp_config->tokens_per_block.value_or(64) : 64;
  return {{
      {turn % 64 != 0,
       fmt::format(
           "cp_config.tokens_per_block: expected a multiple of a page's 64 tokens, found {}",
           turn)},
  }};
}

}  // namespace

Status check_supported(const ParallelConfig& config) {
  const auto refuse_exceeded = [&](const auto& limits) {
    for (const Limit& limit : limits) {
      if (limit.exceeded) return invalid_input(limit.message).at(config.name);
    }
    return Status();
  };
  const Status sizes = refuse_exceeded(size_limits(config.sizes));
  return sizes.ok() ? refuse_exceeded(feature_limits(config)) : sizes;
}

}  // namespace wideep::parallel
