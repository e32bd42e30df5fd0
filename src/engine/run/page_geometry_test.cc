// SPDX-License-Identifier: Apache-2.0
//
// Models with random layers and heads are divided among random stages and ranks: what a rank's part
// says is held against the pointers that its layers use, and the parts of all ranks put together
// must be the whole page and the whole state. Classes of the reference model must be equal where
// bits are, and must differ with everything that changes them. A failure is a prompt whose keys and
// values come from another head, layer or model.
#include "run/page_geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "model/config/config_testing.h"
#include "model/state_layout.h"
#include "run/run.h"

namespace wideep::run {
namespace {

using testing::HasSubstr;
using Payload = std::vector<std::byte>;

class RandomDivision {
 public:
  RandomDivision(const std::string& family, uint32_t seed) : random_(seed) {
    auto config = model::parse(model::small_json(family));
    EXPECT_TRUE(config.ok()) << config.status().message();
    plan_ = {.model = {.config = std::move(*config)},
             .mapping = parallel::Mapping::create({}).value()};
    make_layers(plan_.model.config);
    plan_.cache = one_of<Dtype>({Dtype::kF32, Dtype::kBf16, Dtype::kF8E4M3});
    divide();
  }

  const RunPlan& plan() const { return plan_; }
  Payload noise(uint64_t bytes) {
    Payload payload(bytes);
    for (std::byte& each : payload) each = static_cast<std::byte>(random_());
    return payload;
  }

 private:
  template <typename T>
  T one_of(std::vector<T> all) {
    return all[random_() % all.size()];
  }

  void make_layers(model::ModelConfig& config) {
    const std::vector<model::LayerConfig> kinds = config.layers;
    config.num_layers = one_of<int>({2, 3, 4, 5, 7});
    config.num_prediction_layers = one_of<int>({0, 0, 1, 2});
    config.layers.clear();
    while (static_cast<int>(config.layers.size()) < config.num_all_layers()) {
      config.layers.push_back(one_of(kinds));
    }
    for (int i = config.num_layers; i < config.num_all_layers(); ++i) {
      config.layers[static_cast<size_t>(i)].mixer = model::LayerConfig::Mixer::kAttention;
    }
    // Compressed attention has one.
    if (!config.is_compressed()) config.num_kv_heads = one_of<int>({1, 2, 4, 8});
    config.num_heads = config.num_kv_heads * one_of<int>({1, 2, 4});
  }

  void divide() {
    const model::ModelConfig& config = plan_.model.config;
    parallel::ParallelSizes sizes;
    do {
      sizes = {.tp = one_of<int>({1, 2, 4, 8}),
               .pp = one_of<int>({1, 2, 3, 4}),
               .cp = one_of<int>({1, 1, 2})};
    } while (config.num_heads % sizes.tp != 0 || sizes.pp > config.num_layers);
    plan_.mapping = parallel::Mapping::create(sizes).value();
    if (sizes.tp > 1 && random_() % 4 != 0) plan_.joint.emplace();
  }

  std::mt19937 random_;
  RunPlan plan_{.model = {}, .mapping = parallel::Mapping::create({}).value()};
};

model::KvLayout layout_of(const RunPlan& plan, int rank) {
  return {plan.model.config, plan.cache, plan.layers_of(rank),
          plan.joint ? plan.mapping.sizes().tp : 1};
}

// A rank's page, filled from the whole one as its layers and heads find their bytes.
Payload page_of_rank(const RunPlan& plan, int rank, Payload whole) {
  const model::ModelConfig& config = plan.model.config;
  const model::KvLayout from(config, plan.cache), to = layout_of(plan, rank);
  Payload page(to.page_bytes());
  int first_head = 0;
  if (plan.joint && !config.is_mla()) {
    const int tp = plan.mapping.sizes().tp;
    first_head = plan.mapping.coordinates(rank).tp_rank * config.num_kv_heads / tp;
  }
  for (int layer = to.layers.first; layer < to.layers.last; ++layer) {
    if (!config.is_cached(layer)) continue;
    const model::CachedHeads& heads = to.heads_of(layer);
    for (int head = 0; head < heads.num_kv_heads; ++head) {
      std::copy_n(from.keys(whole.data(), layer, first_head + head), heads.key_bytes,
                  to.keys(page.data(), layer, head));
      std::copy_n(from.values(whole.data(), layer, first_head + head), heads.value_bytes,
                  to.values(page.data(), layer, head));
    }
    std::copy_n(from.index_keys(whole.data(), layer), heads.index_bytes,
                to.index_keys(page.data(), layer));
  }
  return page;
}

Payload part_of(const store::Part& part, const Payload& whole) {
  Payload payload(part.bytes());
  EXPECT_EQ(store::copy_overlap(store::Part::whole(whole.size()), whole, part, payload),
            part.bytes());
  return payload;
}

// Ranks have parts of heads of several kinds, which are not pieces of one length.
bool divides_several_kinds(const RunPlan& plan) {
  return plan.joint && plan.mapping.sizes().tp > 1 && !plan.model.config.other_kinds.empty();
}

void expect_parts_are_the_whole(RandomDivision& division) {
  const RunPlan& plan = division.plan();
  const Result<PageGeometry> first = page_geometry(plan, 0, "");
  if (!first.ok() && divides_several_kinds(plan)) {
    EXPECT_THAT(first.status().message(), HasSubstr("enable_attention_dp: true"));
    return;
  }
  const PageGeometry any = first.value();
  const Payload page = division.noise(any.page_bytes), state = division.noise(any.state_bytes);
  Payload pages(page.size()), states(state.size());
  for (int rank = 0; rank < plan.mapping.world_size(); ++rank) {
    const PageGeometry geometry = page_geometry(plan, rank, "").value();
    ASSERT_EQ(geometry.page_bytes, any.page_bytes);
    ASSERT_EQ(geometry.state_bytes, any.state_bytes);
    const Payload own = part_of(geometry.page, page);
    ASSERT_EQ(own, page_of_rank(plan, rank, page)) << "rank " << rank;
    ASSERT_EQ(geometry.state.bytes(),
              model::StateLayout(plan.model.config, plan.layers_of(rank), plan.state_part_of(rank))
                  .bytes());
    store::copy_overlap(geometry.page, own, store::Part::whole(pages.size()), pages);
    store::copy_overlap(geometry.state, part_of(geometry.state, state),
                        store::Part::whole(states.size()), states);
  }
  EXPECT_EQ(pages, page);
  EXPECT_EQ(states, state);
}

TEST(PageGeometry, PartsOfAllRanksAreTheWhole) {
  for (const std::string& family : model::small_families()) {
    for (uint32_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(testing::Message() << family << ", seed " << seed);
      RandomDivision division(family, seed);
      expect_parts_are_the_whole(division);
    }
  }
}

// What one layout has written another reads, without the whole between them.
TEST(PageGeometry, PartsOfOneLayoutAreCutFromThoseOfAnother) {
  RunPlan plan{.model = {.config = model::parse(model::small_json("mixtral")).value()},
               .mapping = parallel::Mapping::create({}).value()};
  plan.model.config.num_kv_heads = 4;
  plan.model.config.num_heads = 8;
  const auto divided = [&](int tp, int pp) {
    RunPlan other = plan;
    other.mapping = parallel::Mapping::create({.tp = tp, .pp = pp}).value();
    if (tp > 1) other.joint.emplace();
    return other;
  };
  const RunPlan writers = divided(2, 2), readers = divided(4, 1);
  Payload page(page_geometry(plan, 0, "")->page_bytes);
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (int reader = 0; reader < 4; ++reader) {
    const store::Part wanted = page_geometry(readers, reader, "")->page;
    Payload into(wanted.bytes());
    uint64_t copied = 0;
    for (int writer = 0; writer < 4; ++writer) {
      const store::Part part = page_geometry(writers, writer, "")->page;
      copied += store::copy_overlap(part, part_of(part, page), wanted, into);
    }
    EXPECT_EQ(copied, wanted.bytes());
    EXPECT_EQ(into, part_of(wanted, page));
  }
}

TEST(PageGeometry, RanksWithTheSameHeadHaveTheSamePart) {
  RunPlan plan{.model = {.config = model::parse(model::small_json("mixtral")).value()},
               .mapping = parallel::Mapping::create({.tp = 4}).value()};
  plan.model.config.num_kv_heads = 2;
  plan.model.config.num_heads = 8;
  plan.joint.emplace();
  const auto part = [&](int rank) { return page_geometry(plan, rank, "")->page; };
  EXPECT_EQ(part(0), part(1));
  EXPECT_EQ(part(2), part(3));
  EXPECT_NE(part(1), part(2));
  plan.joint.reset();  // every rank has its own requests, and all heads
  EXPECT_EQ(part(3), store::Part::whole(page_geometry(plan, 3, "")->page_bytes));
}

TEST(PageGeometry, HeadsBesideAnIndexerAreNoPart) {
  const auto config = model::parse(model::small_json("deepseek_v32")).value();
  model::KvLayout whole(config, Dtype::kBf16);
  ASSERT_GT(whole.index_bytes, 0u);
  whole.num_kv_heads = 2;
  EXPECT_THAT(part_of_page(whole, whole.layers, {.num_kv = 1}).status().message(),
              HasSubstr("enable_attention_dp: true"));
  EXPECT_EQ(part_of_page(whole, whole.layers, {.num_kv = 2}).value(),
            store::Part::whole(whole.page_bytes()));
}

// ---- the class ----

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

base::Machine machine_with(uint64_t bytes) {
  base::Machine machine;
  machine.topology.cores = {{0}};
  machine.allowed = {0};
  machine.memory_bytes = machine.free_memory_bytes = bytes;
  return machine;
}

struct WantedClass {
  WantedClass() {
    options.model_dir = kReference;
    options.parallel = parallel::parallel_config_for_ranks(1).value();
  }
  std::string made() const {
    const auto inputs = read_run_inputs(options);
    EXPECT_TRUE(inputs.ok()) << inputs.status().message();
    const auto plan = plan_run(inputs->model, options, machine_with(uint64_t{4} << 30));
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return record_class(options, *inputs, *plan);
  }
  RunOptions options;
};

template <typename Change>
std::string class_with(Change change) {
  WantedClass wanted;
  change(wanted.options);
  return wanted.made();
}

void set_ranks(RunOptions& options, int ranks) {
  options.parallel = parallel::parallel_config_for_ranks(ranks).value();
}

TEST(RecordClass, IsTheSameWhereBitsAre) {
  const std::string one = WantedClass().made();
  EXPECT_EQ(one.size(), 64u);
  EXPECT_EQ(one, WantedClass().made());
  const base::ScratchDirectory copy;
  std::filesystem::copy(kReference, copy.path());
  EXPECT_EQ(one, class_with([&](RunOptions& options) { options.model_dir = copy.path(); }));
  EXPECT_EQ(one, class_with([](RunOptions& options) { set_ranks(options, 2); }));
  EXPECT_EQ(one, class_with([](RunOptions& options) { options.parallel.sizes.pp = 2; }));
  EXPECT_EQ(one, class_with([](RunOptions& options) {
              set_ranks(options, 2);
              options.parallel.enable_attention_dp = false;
            }));
  EXPECT_EQ(one, class_with([](RunOptions& options) {
              options.parallel.max_num_tokens = 128;
              options.prefill_chunk = 64;
              options.threads_per_rank = 2;
              options.host_cache_bytes = 1 << 20;
            }));
}

TEST(RecordClass, DiffersWithWhatChangesBits) {
  std::vector<std::string> all = {
      WantedClass().made(),
      class_with([](RunOptions& options) { options.random_weights = 1; }),
      class_with([](RunOptions& options) { options.random_weights = 2; }),
      class_with([](RunOptions& options) { options.format = kernels::WeightFormat::kF32; }),
      class_with([](RunOptions& options) { options.parallel.kv_cache_config.dtype = "FP8"; }),
      class_with([](RunOptions& options) { options.parallel.moe_config.dispatch_dtype = "FP8"; }),
      class_with([](RunOptions& options) { options.parallel.moe_config.combine_dtype = "NVFP4"; }),
      class_with([](RunOptions& options) { options.perfect_router = true; }),
      class_with([](RunOptions& options) { options.parallel.moe_config.combine = "REDUCED"; }),
      class_with([](RunOptions& options) {
        set_ranks(options, 2);
        options.parallel.moe_config.combine = "REDUCED";
      })};
  const base::ScratchDirectory other;
  std::filesystem::copy(kReference, other.path());
  std::string weights = formats::read_file(other.file("model.safetensors")).value();
  weights.back() = static_cast<char>(weights.back() ^ 1);
  ASSERT_TRUE(formats::write_file(other.file("model.safetensors"), weights).ok());
  all.push_back(class_with([&](RunOptions& options) { options.model_dir = other.path(); }));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

// Prompts that peers compute are looked for also where none are kept, if their pages are shared.
TEST(TakesFromPeers, LooksForPromptsByName) {
  WantedClass wanted;
  const auto look = [&](bool expected) {
    const auto run = Run::prepare(wanted.options);
    ASSERT_TRUE(run.ok()) << run.status().message();
    EXPECT_EQ((*run)->looks_for_prompts(), expected);
    EXPECT_EQ((*run)->record_class(), expected ? wanted.made() : "");
  };
  look(false);
  wanted.options.takes_from_peers = true;
  look(true);
  wanted.options.parallel.kv_cache_config.enable_block_reuse = false;
  look(false);
}

}  // namespace
}  // namespace wideep::run
