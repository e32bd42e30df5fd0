// SPDX-License-Identifier: Apache-2.0
// Any bytes as a parallel configuration: a consistent one or one line of complaint.
#include <string>

#include "base/check.h"
#include "parallel/parallel_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::parallel;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_parallel_config(text, "fuzz");
  if (!config.ok()) {
    WIDEEP_CHECK(config.status().message().find('\n') == std::string::npos);
    return 0;
  }
  const Mapping mapping = config->mapping();
  const int last = mapping.world_size() - 1;
  WIDEEP_CHECK_EQ(mapping.coordinates(last).pp_rank, config->sizes.pp - 1);
  WIDEEP_CHECK_EQ(mapping.coordinates(last).moe_ep_rank, config->sizes.moe_ep - 1);
  const ParallelSizes& sizes = config->sizes;
  WIDEEP_CHECK_EQ(sizes.moe_tp * sizes.moe_ep * sizes.moe_cluster, sizes.tp);
  WIDEEP_CHECK_EQ(sizes.tp * sizes.cp * sizes.pp, mapping.world_size());
  return 0;
}
