// SPDX-License-Identifier: Apache-2.0
//
// Machines are made up, so that each finding has one on which it must be made. Memory is set to the
// byte at which a model fits, and to one less, and the remedy must be the mildest that helps: fewer
// tokens, then fewer ranks, slots or bits, several together only where one is not enough. A failure
// is a `wideep doctor` that sends its user to buy memory, or that calls a run possible which is
// not.
#include "run/advice.h"

#include <gmock/gmock.h>

#include "model/config/config_testing.h"
#include "model/model_division.h"

namespace wideep::run {
namespace {

using base::Machine;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;

Machine machine_of(int cores, uint64_t bytes) {
  Machine machine;
  machine.num_processors = cores;
  for (int i = 0; i < cores; ++i) {
    machine.topology.cores.push_back({i});
    machine.allowed.push_back(i);
  }
  machine.topology.numa_node_bytes = {bytes};
  machine.memory_bytes = machine.free_memory_bytes = bytes;
  return machine;
}

auto is_advice(const std::string& finding, const std::string& remedy) {
  return AllOf(Field(&Advice::finding, HasSubstr(finding)),
               Field(&Advice::remedy, HasSubstr(remedy)));
}

// ---- the machine ----

TEST(MachineAdvice, AGoodMachineNeedsNone) {
  EXPECT_THAT(machine_advice(machine_of(8, kGiB), 8, "avx512", "avx512"), IsEmpty());
}

TEST(MachineAdvice, MoreRanksThanCores) {
  EXPECT_THAT(
      machine_advice(machine_of(2, kGiB), 8, "avx2", "avx2"),
      ElementsAre(is_advice("8 ranks share 2 cores: they take turns", "--ranks 2 or fewer")));
  EXPECT_THAT(machine_advice(machine_of(1, kGiB), 2, "avx2", "avx2"),
              ElementsAre(is_advice("2 ranks share 1 core:", "--ranks 1 or fewer")));
}

TEST(MachineAdvice, NumaAndReservedHugePages) {
  Machine machine = machine_of(8, kGiB);
  machine.topology.numa_node_bytes = {kGiB, kGiB};
  machine.huge_pages.reserved = {{.page_bytes = 2 << 20, .num_pages = 512, .num_free = 512}};
  EXPECT_THAT(machine_advice(machine, 3, "avx2", "avx2"),
              ElementsAre(is_advice("2 parts (NUMA nodes)", "divides the cores"),
                          is_advice("1.0 GiB are reserved as huge pages", "nr_hugepages")));
}

TEST(MachineAdvice, SlowKernels) {
  const Machine machine = machine_of(1, kGiB);
  EXPECT_THAT(machine_advice(machine, 1, "avx2", "avx512"),
              ElementsAre(is_advice("WIDEEP_ISA forces avx2", "unset WIDEEP_ISA")));
  EXPECT_THAT(machine_advice(machine, 1, "ref", "ref"),
              ElementsAre(is_advice("plain loops run", "AVX2 or AVX-512")));
}

// ---- the model ----

// A model as someone wants to run it.
struct Wanted {
  ModelFacts model;
  RunOptions options;

  void set_slots(int num_slots) {
    model.placement.num_slots = num_slots;
    for (const int layer : model::moe_layers(model.config)) {
      model.placement.layers[layer] =
          balance::default_placement(model.config.routing.num_experts,
                                     options.parallel.sizes.moe_ep, num_slots)
              .value();
    }
  }
  void set_ranks(int ranks) {
    options.parallel.sizes.tp = options.parallel.sizes.moe_ep = ranks;
    set_slots(model.placement.num_slots);
  }
  void set_format(kernels::WeightFormat format) {
    options.format = format;
    model.forms = model::uniform_forms(model.config, format);
  }
  ModelFit fit_in(const Machine& machine) const {
    return judge_fit(model, options, machine).value();
  }
  ModelFit fit_in(uint64_t bytes) const { return fit_in(machine_of(2, bytes)); }
  uint64_t bytes_needed() const { return fit_in(kGiB).bytes_needed; }
  // Where there is a byte too little.
  Advice tight() const { return *fit_in(bytes_needed() - 1).advice; }
};

Wanted golden_run() {
  Wanted run;
  run.options.parallel.enable_attention_dp = true;
  run.model.config = *model::read_model_config(model::golden_dir("qwen3_gqa"));
  run.model.placement.num_slots = run.model.config.routing.num_experts;
  run.set_ranks(2);
  run.set_format(kernels::WeightFormat::kBf16);
  return run;
}

TEST(ModelFit, AmpleMemory) {
  const ModelFit fit = golden_run().fit_in(kGiB);
  EXPECT_TRUE(fit.fits());
  EXPECT_FALSE(fit.advice.has_value());
  EXPECT_EQ(fit.kv_tokens,
            (kGiB - fit.memory.bytes_without_cache()) / fit.memory.kv_page_bytes * 64);
}

TEST(ModelFit, ExactlyEnoughFitsAndOneByteLessDoesNot) {
  const Wanted run = golden_run();
  const ModelFit exact = run.fit_in(run.bytes_needed());
  EXPECT_TRUE(exact.fits());
  EXPECT_EQ(exact.kv_tokens, 2u * 64);
  EXPECT_THAT(*exact.advice,
              is_advice("fills 100 % of the memory: room for 128 cached tokens", ""));
  EXPECT_FALSE(run.fit_in(run.bytes_needed() - 1).fits());
}

TEST(ModelFit, NamesTheMildestStepThatHelps) {
  Wanted run = golden_run();
  EXPECT_THAT(run.tight(),
              is_advice("the model does not fit: it needs", "it fits with --max-num-tokens 256"));
  run.options.parallel.max_num_tokens = 32;
  EXPECT_THAT(run.tight(), is_advice("", "it fits with --ranks 1"));
  run.options.parallel.kv_cache_config.max_tokens = 1000;
  EXPECT_THAT(run.tight(), is_advice("", "it fits with a smaller kv_cache_config.max_tokens"));
}

TEST(ModelFit, TheHostCacheCountsAndGoesFirst) {
  Wanted run = golden_run();
  const uint64_t before = run.bytes_needed(), tokens = run.fit_in(kGiB).kv_tokens;
  run.options.host_cache_bytes = kGiB / 4;
  EXPECT_EQ(run.bytes_needed(), before + kGiB / 4);
  EXPECT_LT(run.fit_in(kGiB).kv_tokens, tokens * 4 / 5);
  EXPECT_THAT(run.tight(), is_advice("does not fit", "it fits with no --host-cache-size"));
  EXPECT_THAT(judge_fit(run.model, run.options, machine_of(2, kGiB / 4)).status().message(),
              HasSubstr("expected less than the 256.0 MiB that can be used, found 256.0 MiB"));
}

TEST(ModelFit, RedundantSlotsAndPrecisionAreSteps) {
  Wanted run = golden_run();
  const int experts = run.model.config.routing.num_experts;
  run.set_ranks(1);
  run.options.parallel.max_num_tokens = 32;
  run.set_slots(experts + 4);
  EXPECT_THAT(run.tight(), is_advice("", "it fits with num_slots: " + std::to_string(experts)));
  run.set_slots(experts);
  run.set_format(kernels::WeightFormat::kF32);
  EXPECT_THAT(run.tight(), is_advice("", "it fits with --dtype bf16"));
}

// Qwen3-30B-A3B on a rank, 57 GiB in bf16.
Wanted large_run() {
  const nlohmann::json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                                 {"model_type", "qwen3_moe"},
                                 {"hidden_size", 2048},
                                 {"num_hidden_layers", 48},
                                 {"num_attention_heads", 32},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 128},
                                 {"intermediate_size", 6144},
                                 {"moe_intermediate_size", 768},
                                 {"num_experts", 128},
                                 {"num_experts_per_tok", 8},
                                 {"norm_topk_prob", true},
                                 {"vocab_size", 151936},
                                 {"max_position_embeddings", 40960},
                                 {"rms_norm_eps", 1e-6},
                                 {"rope_theta", 1e6}};
  Wanted run;
  run.options.parallel.enable_attention_dp = true;
  run.model.config = model::parse_model_config(config.dump(), "config.json").value();
  run.model.placement.num_slots = 128;
  run.set_ranks(1);
  run.set_format(kernels::WeightFormat::kBf16);
  return run;
}

// The most bits a weight that fit.
TEST(ModelFit, FewerBitsAWeight) {
  Wanted run = large_run();
  EXPECT_THAT(*run.fit_in(18 * kGiB).advice, is_advice("", "it fits with --dtype int4"));
  EXPECT_THAT(*run.fit_in(40 * kGiB).advice, is_advice("", "it fits with --dtype int8"));
  EXPECT_THAT(*run.fit_in(8 * kGiB).advice, is_advice("", "use a machine with more than"));
  run.set_format(kernels::WeightFormat::kInt8);
  EXPECT_THAT(*run.fit_in(20 * kGiB).advice, is_advice("", "it fits with --dtype int4"));
  run.set_format(kernels::WeightFormat::kInt4);
  EXPECT_THAT(*run.fit_in(8 * kGiB).advice, is_advice("", "use a machine with more than"));
}

// Half of the memory of the experts, and a tenth of the whole left free.
TEST(ModelFit, SomeExpertsInMemoryAreAWay) {
  Wanted run = large_run();
  const ModelFit full = run.fit_in(64 * kGiB);
  const uint64_t rest = full.bytes_needed - full.bytes_of_experts();
  const ModelFit half = run.fit_in((rest + full.bytes_of_experts() / 2) * 10 / 9 + 1);
  ASSERT_FALSE(half.fits());
  EXPECT_NEAR(static_cast<double>(expert_memory_to_give(half)),
              static_cast<double>(half.memory.slots_per_rank) / 2, 16.0);
  EXPECT_THAT(*half.advice, is_advice("", "or with --packed-cache DIR --expert-memory "));
  EXPECT_THAT(*half.advice, is_advice("", "keeps 50 % of the experts in memory"));
  EXPECT_EQ(expert_memory_to_give(run.fit_in(rest)), 0u);
  EXPECT_THAT(run.fit_in(rest).advice->remedy, testing::Not(HasSubstr("--expert-memory")));
  run.set_ranks(2);
  EXPECT_GT(expert_memory_to_give(run.fit_in(half.bytes_usable)), 0u);
  run.options.parallel.enable_attention_dp = false;  // both compute each request
  EXPECT_EQ(expert_memory_to_give(run.fit_in(half.bytes_usable)), 0u);
}

TEST(ModelFit, SeveralStepsTogether) {
  Wanted run = golden_run();
  run.set_format(kernels::WeightFormat::kF32);
  Wanted small = run;
  small.set_format(kernels::WeightFormat::kBf16);
  small.set_ranks(1);
  small.options.parallel.max_num_tokens = 32;
  EXPECT_THAT(*run.fit_in(small.bytes_needed()).advice,
              is_advice("", "it fits with --max-num-tokens 32, --ranks 1, --dtype bf16"));
}

// What every step together cannot mend needs another machine, or a higher limit.
TEST(ModelFit, MoreMemory) {
  const Wanted run = golden_run();
  EXPECT_THAT(*run.fit_in(1000).advice,
              is_advice("1000 B can be used", "use a machine with more than"));

  Machine busy = machine_of(2, kGiB);
  busy.free_memory_bytes = 1000;
  EXPECT_THAT(*run.fit_in(busy).advice, is_advice("", "1000 B of 1.0 GiB are free"));

  Machine limited = machine_of(2, kGiB);
  limited.control_group.memory_free_bytes = 1000;
  EXPECT_THAT(*run.fit_in(limited).advice, is_advice("", "raise the control group's"));
}

}  // namespace
}  // namespace wideep::run
