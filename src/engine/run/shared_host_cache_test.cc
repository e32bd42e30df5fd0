// SPDX-License-Identifier: Apache-2.0
//
// A small golden model on a machine that is made up. A failure means that pages for other servers
// have no room, or take memory that other things need.
#include "run/shared_host_cache.h"

#include <gtest/gtest.h>

#include "model/config/config_testing.h"
#include "run/page_geometry.h"
#include "store/host_index.h"

namespace wideep::run {
namespace {

base::Machine two_cores_with(uint64_t bytes) {
  base::Machine machine;
  for (int i = 0; i < 2; ++i) {
    machine.topology.cores.push_back({i});
    machine.allowed.push_back(i);
  }
  machine.memory_bytes = machine.free_memory_bytes = bytes;
  return machine;
}

// Of two ranks with attention data parallelism, ten pages each.
struct Shared {
  Shared() {
    options.parallel.enable_attention_dp = true;
    options.parallel.sizes.tp = options.parallel.sizes.moe_ep = 2;
    options.parallel.kv_cache_config.max_tokens = 640;
    model.config = *model::read_model_config(model::golden_dir("qwen3_gqa"));
    model.forms = model::uniform_forms(model.config, kernels::WeightFormat::kBf16);
    const int experts = model.config.routing.num_experts;
    model.placement.num_slots = experts;
    for (const int layer : model::moe_layers(model.config)) {
      model.placement.layers[layer] = balance::linear_placement(experts, 2).value();
    }
  }
  uint64_t bytes(const base::Machine& machine) const {
    const RunPlan plan = plan_run(model, options, machine).value();
    return shared_host_cache(options, plan, machine).value();
  }
  // Of all layers, with what is lost to whole blocks.
  uint64_t page(const base::Machine& machine) const {
    const RunPlan plan = plan_run(model, options, machine).value();
    return page_geometry(plan, 0, "")->page_bytes + store::HostIndex::kBlockBytes;
  }

  ModelFacts model;
  RunOptions options;
};

TEST(SharedHostCache, HasRoomForWhatTheCachesOfTheNodeHave) {
  const base::Machine machine = two_cores_with(uint64_t{1} << 32);
  Shared shared;
  EXPECT_EQ(shared.bytes(machine), 20 * shared.page(machine));
  // Both ranks have parts of the same pages.
  shared.options.parallel.enable_attention_dp = false;
  EXPECT_EQ(shared.bytes(machine), 10 * (shared.page(machine) + store::HostIndex::kBlockBytes));
}

TEST(SharedHostCache, TakesAFifthOfTheMemoryAtMost) {
  const base::Machine machine = two_cores_with(uint64_t{1} << 32);
  Shared shared;
  shared.options.parallel.kv_cache_config.max_tokens = int64_t{1} << 28;
  EXPECT_EQ(shared.bytes(machine), machine.usable_memory_bytes() / 5);
}

TEST(SharedHostCache, HasRoomForSoManyTokensWhateverTheMemory) {
  const base::Machine machine = two_cores_with(uint64_t{1} << 30);
  Shared shared;
  shared.options.parallel.cache_transceiver_config = {.max_tokens_in_buffer = 8449};
  EXPECT_EQ(shared.bytes(machine), 133 * shared.page(machine));
  shared.options.parallel.cache_transceiver_config = {.max_tokens_in_buffer = 1};
  EXPECT_EQ(shared.bytes(machine), 4 * shared.page(machine));  // run::kFewestPages
}

}  // namespace
}  // namespace wideep::run
