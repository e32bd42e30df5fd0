// SPDX-License-Identifier: Apache-2.0
//
// Planned against loaded and run: the golden models' files, and the heap.
#include "run/memory_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>

#include "base/aligned_bytes.h"
#include "base/numa.h"
#include "base/scratch_directory.h"
#include "kernels/coded_matrix.h"
#include "kernels/packed_matrix.h"
#include "model/config/config_testing.h"
#include "model/model.h"
#include "model/model_division.h"
#include "model/model_files.h"
#include "transport/endpoint.h"
#include "weights/checkpoint.h"
#include "weights/named_tensors.h"
#include "weights/quantized_tensors.h"

namespace wideep::run {
namespace {

using kernels::WeightFormat;

const std::string kModels = WIDEEP_SOURCE_DIR "/tests/golden/";
const std::string kPredicting = "prediction_models/deepseek_v3";

std::vector<std::string> model_names() {
  std::vector<std::string> names = {kPredicting};
  for (const auto& entry : std::filesystem::directory_iterator(kModels + "models")) {
    names.push_back("models/" + entry.path().filename().string());
  }
  return names;
}

class GoldenPlan : public testing::TestWithParam<std::tuple<std::string, WeightFormat>> {
 protected:
  void SetUp() override {
    auto config = model::read_model_config(dir_);
    auto checkpoint = weights::Checkpoint::open(dir_);
    ASSERT_TRUE(config.ok() && checkpoint.ok());
    config_ = std::move(config).value();
    if (std::get<0>(GetParam()) == kPredicting) {
      ASSERT_TRUE(model::add_prediction_layers(1, &config_).ok());
    }
    checkpoint_.emplace(std::move(checkpoint).value());
  }

  void expect_dense_weights_as_loaded();
  MemoryPlan plan(int num_ranks = 1, int max_num_tokens = 16,
                  std::string_view cache = "AUTO") const {
    return plan_memory(config_,
                       dispatch_shape(config_,
                                      {.num_ranks = num_ranks,
                                       .num_slots = config_.routing.num_experts,
                                       .max_num_tokens = max_num_tokens},
                                      format_),
                       format_, cache_dtype(cache, format_));
  }

  const std::string dir_ = kModels + std::get<0>(GetParam());
  const WeightFormat format_ = std::get<1>(GetParam());
  model::ModelConfig config_;
  std::optional<weights::Checkpoint> checkpoint_;
};

std::string name_of(const testing::TestParamInfo<GoldenPlan::ParamType>& each) {
  return fmt::format("{}_{}", std::filesystem::path(std::get<0>(each.param)).filename().string(),
                     kernels::weight_format_name(std::get<1>(each.param)));
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenPlan,
                         testing::Combine(testing::ValuesIn(model_names()),
                                          testing::Values(WeightFormat::kF32, WeightFormat::kBf16,
                                                          WeightFormat::kInt8)),
                         name_of);

// One of each kind of mixer and of each form of experts: what parts/*_cost.cc says of its matrices.
class FamilyPlan : public GoldenPlan {};

INSTANTIATE_TEST_SUITE_P(
    Models, FamilyPlan,
    testing::Combine(
        testing::Values("family_models/deepseek_v32_plain", "family_models/gemma4_text_plain",
                        "family_models/gpt_oss_plain", "family_models/kimi_linear_plain",
                        "family_models/nemotron_h_latent", "family_models/nemotron_h_twice",
                        "family_models/lfm2_moe_plain", "family_models/llama4_scout",
                        "family_models/llama_bias", "family_models/minimax_m3_plain",
                        "family_models/qwen3_5_moe_plain", "family_models/qwen3_next_plain"),
        testing::Values(WeightFormat::kF32, WeightFormat::kBf16)),
    name_of);

// What a tensor of the checkpoint becomes, from its own name and shape.
uint64_t loaded_bytes(const std::string& name, const std::vector<int64_t>& shape,
                      WeightFormat format, const model::ModelConfig& config) {
  const auto packed = [&](WeightFormat type, int64_t n, int64_t k) {
    return kernels::packed_shape(type, static_cast<int>(n), static_cast<int>(k)).bytes();
  };
  if (shape.size() == 1) return shape[0] * sizeof(float);
  const int64_t n = shape[0], k = shape[1];
  if (name == "model.embed_tokens.weight") {
    const uint64_t embedding = n * k * dtype_bytes(kernels::row_dtype(format));
    return embedding + (config.tie_word_embeddings ? packed(format, n, k) : 0);
  }
  if (name.ends_with("mlp.gate.weight")) return packed(WeightFormat::kF32, n, k);
  if (name.ends_with("kv_b_proj.weight")) {
    const int nope = config.qk_nope_head_dim, v = config.v_head_dim;
    const WeightFormat kv_b = format == WeightFormat::kF32 ? format : WeightFormat::kBf16;
    return n / (nope + v) * (packed(kv_b, k, nope) + packed(kv_b, v, k) + packed(kv_b, nope, k));
  }
  return packed(format, n, k);
}

TEST_P(GoldenPlan, WeightsAreThoseOfTheCheckpoint) {
  const std::string mtp = fmt::format("model.layers.{}.", config_.num_all_layers());
  uint64_t dense = 0, experts = 0;
  const auto file = tensor_files::SafetensorsFile::open(dir_ + "/model.safetensors");
  ASSERT_TRUE(file.ok());
  for (const std::string& name : checkpoint_->names()) {
    if (name.starts_with(mtp)) continue;
    const uint64_t bytes = loaded_bytes(name, file->find(name)->shape, format_, config_);
    (name.find(".mlp.experts.") == std::string::npos ? dense : experts) += bytes;
  }
  EXPECT_EQ(plan().dense_weights, dense);
  EXPECT_EQ(plan().slots_per_rank, experts);
  EXPECT_EQ(plan(2).dense_weights, dense);
  EXPECT_EQ(2 * plan(2).slots_per_rank, experts);
}

TEST_P(GoldenPlan, SlotsAreWhatLoadingAllocates) {
  balance::ModelPlacement placement;
  for (const int layer : model::moe_layers(config_)) {
    placement.layers[layer] = *balance::linear_placement(config_.routing.num_experts, 2);
  }
  const weights::WeightLoader loader(*checkpoint_, format_);
  const auto slots = model::ExpertSlots::load(config_, loader, placement, 1);
  ASSERT_TRUE(slots.ok()) << slots.status().message();
  EXPECT_EQ(plan(2).slots_per_rank, slots->total_bytes());
}

// Bytes in use on the heap; 0 under sanitizers, whose allocator does not report them.
uint64_t heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

void GoldenPlan::expect_dense_weights_as_loaded() {
  if (heap_bytes() == 0) GTEST_SKIP() << "the heap of this build cannot be measured";
  const auto files = model::ModelFiles::open(dir_, &config_);
  ASSERT_TRUE(files.ok()) << files.status().message();
  const weights::WeightLoader loader(files->tensors(), format_);
  // What is known of the machine's memory is read once, and stays.
  base::AlignedBytes bytes(size_t{1} << 20);
  base::spread_over_numa_nodes(bytes.data(), bytes.size());
  const uint64_t before = heap_bytes();
  const auto loaded = model::ModelWeights::load(config_, loader);
  const uint64_t allocated = heap_bytes() - before;
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  // These models' many small tensors make the heap's own bookkeeping visible: at most a header, the
  // alignment and a vector's or object's own fields for each; less by what it had kept for reuse.
  const auto bookkeeping = 384.0 * static_cast<double>(checkpoint_->names().size());
  EXPECT_NEAR(static_cast<double>(allocated), static_cast<double>(plan().dense_weights),
              bookkeeping);
}

TEST_P(GoldenPlan, DenseWeightsAreWhatLoadingAllocates) { expect_dense_weights_as_loaded(); }
TEST_P(FamilyPlan, DenseWeightsAreWhatLoadingAllocates) { expect_dense_weights_as_loaded(); }

// A copy of a golden model in which every matrix has the format that `choose` returns, if any.
using ChooseFormat = std::function<std::optional<WeightFormat>(const std::string& name)>;
void write_mixed(const std::string& from, const std::string& to, const ChooseFormat& choose) {
  std::filesystem::copy(from + "/config.json", to + "/config.json");
  const auto source = tensor_files::SafetensorsFile::open(from + "/model.safetensors");
  ASSERT_TRUE(source.ok());
  std::deque<weights::NamedTensor> kept;
  std::vector<tensor_files::TensorToWrite> tensors;
  for (const auto& [name, entry] : source->tensors()) {
    const auto format = choose(name);
    if (!format) {
      tensors.push_back({name, entry.dtype, entry.shape, entry.bytes});
      continue;
    }
    std::vector<float> values(entry.num_elements());
    weights::to_float32(entry, values.data());
    const int n = static_cast<int>(entry.shape[0]), k = static_cast<int>(entry.shape[1]);
    const int group = *format == WeightFormat::kInt8 ? 8 : kernels::default_group(*format);
    const auto codes = kernels::quantize_matrix(*format, group, values.data(), n, k, 0.0f);
    const std::string module = name.substr(0, name.rfind(".weight"));
    for (auto& tensor : weights::quantized_tensors(module, codes)) {
      tensors.push_back(kept.emplace_back(std::move(tensor)).to_write());
    }
  }
  ASSERT_TRUE(tensor_files::write_safetensors(to + "/model.safetensors", tensors).ok());
}

// Experts in int8 with groups of 8, output projections in NVFP4, all else as it was.
TEST(MixedPlan, FollowsEveryMatrixsOwnForm) {
  const base::ScratchDirectory scratch;
  write_mixed(kModels + "models/qwen3_gqa", scratch.path(),
              [](const std::string& name) -> std::optional<WeightFormat> {
                if (name.ends_with("o_proj.weight")) return WeightFormat::kNvfp4;
                if (name.find(".mlp.experts.") != std::string::npos) return WeightFormat::kInt8;
                return std::nullopt;
              });
  const auto config = model::read_model_config(scratch.path());
  const auto checkpoint = weights::Checkpoint::open(scratch.path());
  ASSERT_TRUE(config.ok() && checkpoint.ok());
  const weights::WeightLoader loader(*checkpoint, {});
  const model::ModelForms forms = model::model_forms(*config, loader);
  EXPECT_EQ(forms.format_names(), "int8, bf16, nvfp4");
  EXPECT_EQ(forms.experts, (weights::MatrixForm{WeightFormat::kInt8, 8}));
  EXPECT_EQ(forms.layers[0].output.format, WeightFormat::kNvfp4);
  EXPECT_EQ(forms.layers[0].input.format, WeightFormat::kBf16);

  balance::ModelPlacement placement;
  for (const int layer : model::moe_layers(*config)) {
    placement.layers[layer] = *balance::linear_placement(config->routing.num_experts, 1);
  }
  const auto slots = model::ExpertSlots::load(*config, loader, placement, 0);
  ASSERT_TRUE(slots.ok()) << slots.status().message();
  const auto shape =
      dispatch_shape(*config, {.num_slots = config->routing.num_experts, .max_num_tokens = 16},
                     forms.experts.format);
  const MemoryPlan plan = plan_memory(*config, shape, forms, Dtype::kBf16);
  EXPECT_EQ(plan.slots_per_rank, slots->total_bytes());
  // Against all of it in bf16: the output projections take fewer bytes, the rest as many.
  const MemoryPlan all_bf16 = plan_memory(*config, shape, WeightFormat::kBf16, Dtype::kBf16);
  const int q_width = config->num_heads * config->head_dim;
  const auto packed = [&](WeightFormat format) {
    return kernels::packed_shape(format, config->hidden_size, q_width).bytes();
  };
  EXPECT_EQ(all_bf16.dense_weights - plan.dense_weights,
            config->num_layers * (packed(WeightFormat::kBf16) - packed(WeightFormat::kNvfp4)));
}

// One rank's forward pass over `num_tokens` tokens, of objects made afresh; returns how much heap
// they have taken when it is done.
uint64_t heap_of_forward(const model::ModelConfig& config, const model::ModelWeights& weights,
                         const weights::WeightLoader& loader, int num_tokens,
                         const model::MoeOptions& options) {
  const int num_experts = config.routing.num_experts;
  balance::ModelPlacement placement;
  for (const int layer : model::moe_layers(config)) {
    placement.layers[layer] = *balance::linear_placement(num_experts, 1);
  }
  const auto slots = model::ExpertSlots::load(config, loader, placement, 0);
  const ep::BufferLayout layout(
      dispatch_shape(config, {.num_slots = num_experts, .max_num_tokens = num_tokens}, options));
  const auto memory = transport::SharedMemory::create(1, layout.segment_bytes());
  EXPECT_TRUE(slots.ok() && memory.ok());
  transport::Endpoint endpoint(*memory, 0, std::chrono::milliseconds(1000));
  base::ThreadPool pool(1);
  const model::KvLayout kv(config, loader.row_dtype());
  base::AlignedBytes page(kv.page_bytes());
  const model::PageList pages = {page.data()};
  model::Batch batch;
  for (int i = 0; i < num_tokens; ++i) {
    batch.ids.push_back(i);
    batch.positions.push_back(i);
    batch.prompt_lengths.push_back(0);  // all generated: latent attention takes most for these
    batch.pages.push_back(&pages);
    batch.logit_rows.push_back(i);  // else the last layer would compute none
  }
  std::vector<float> logits(static_cast<size_t>(num_tokens) * config.vocab_size);
  const uint64_t before = heap_bytes();
  model::MoeRunner moe(config, placement, *slots, endpoint, layout, options);
  model::Model model(config, weights, {*kernels::all_kernels().back(), pool}, moe);
  EXPECT_TRUE(model.forward(batch, kv, 0, &logits).ok());
  std::vector<int32_t> predicted(batch.ids.size());
  if (config.num_prediction_layers > 0) {
    std::vector<const float*> outputs;
    for (int row = 0; row < num_tokens; ++row) outputs.push_back(model.output(row));
    EXPECT_TRUE(model.predict({.batch = batch, .before = outputs}, kv, 0, &predicted).ok());
  }
  const uint64_t logits_of_prediction =
      config.num_prediction_layers > 0 ? logits.size() * sizeof(float) : 0;
  return heap_bytes() - before - logits_of_prediction;
}

void expect_working_memory(const model::ModelConfig& config, const weights::TensorSource& tensors,
                           WeightFormat format) {
  constexpr int kTokens = kernels::kPageTokens;
  const weights::WeightLoader loader(tensors, format);
  const auto loaded = model::ModelWeights::load(config, loader);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const model::MoeOptions as_they_are{.row_dtype = loader.row_dtype()};
  heap_of_forward(config, *loaded, loader, kTokens, as_they_are);  // memory of threads, kept
  for (const auto& travel : {std::optional<kernels::RowFormat>(), {kernels::RowFormat::kNvfp4}}) {
    model::MoeOptions options = as_they_are;
    options.dispatch = options.combine = travel;
    const ep::DispatchShape shape = dispatch_shape(
        config, {.num_slots = config.routing.num_experts, .max_num_tokens = kTokens}, options);
    const auto allocated =
        static_cast<double>(heap_of_forward(config, *loaded, loader, kTokens, options));
    const auto planned = static_cast<double>(
        plan_memory(config, shape, format, loader.row_dtype()).working_memory_per_rank);
    EXPECT_GT(allocated, 0.9 * planned);
    EXPECT_LT(allocated, 1.3 * planned);
  }
}

TEST_P(GoldenPlan, WorkingMemoryIsAboutWhatAForwardPassAllocates) {
  if (heap_bytes() == 0) GTEST_SKIP() << "the heap of this build cannot be measured";
  expect_working_memory(config_, *checkpoint_, format_);
}

// Which a prediction continues, and keeps of all rows.
TEST(StreamsPlan, WorkingMemoryIsAboutWhatAForwardPassAllocates) {
  if (heap_bytes() == 0) GTEST_SKIP() << "the heap of this build cannot be measured";
  const std::string dir = kModels + "prediction_models/deepseek_v4";
  auto config = model::read_model_config(dir);
  const auto checkpoint = weights::Checkpoint::open(dir);
  ASSERT_TRUE(config.ok() && checkpoint.ok());
  ASSERT_TRUE(model::add_prediction_layers(1, &*config).ok());
  const weights::NamedTensors tensors(*checkpoint, checkpoint->names(), config->tensor_names,
                                      config->routing.num_experts);
  expect_working_memory(*config, tensors, WeightFormat::kF32);
  expect_working_memory(*config, tensors, WeightFormat::kInt8);
}

TEST(MoeOptions, DtypesOfRowsOfAnyLength) {
  model::ModelConfig config;
  config.hidden_size = 2056;  // no multiple of the values that share a scale
  parallel::ParallelConfig settings;
  settings.moe_config.combine_dtype = "NVFP4";
  const auto one = moe_options(settings, config, WeightFormat::kBf16);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->dispatch_format(), kernels::RowFormat::kBf16);
  EXPECT_EQ(one->combine_format(), kernels::RowFormat::kNvfp4);
  settings.moe_config.dispatch_dtype = "FP8";
  const auto both = moe_options(settings, config, WeightFormat::kBf16);
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(both->dispatch_format(), kernels::RowFormat::kFp8);
}

TEST_P(GoldenPlan, CacheAndMessagesGrowWithWhatTheyHold) {
  const model::KvLayout kv(config_, kernels::row_dtype(format_));
  EXPECT_EQ(plan().kv_bytes(1), kv.page_bytes());
  EXPECT_EQ(plan().kv_bytes(64), kv.page_bytes());
  EXPECT_EQ(plan().kv_bytes(65), 2 * kv.page_bytes());
  MemoryPlan two = plan();  // ranks share a sequence of 16 pages, three at a time
  two.num_groups = 2;
  two.turn_pages = 3;
  EXPECT_EQ(two.kv_bytes_of_rank(1024), 9 * kv.page_bytes());
  const uint64_t bf16 = model::KvLayout(config_, Dtype::kBf16).page_bytes();
  EXPECT_EQ(plan(1, 16, "BF16").kv_page_bytes, bf16);
  EXPECT_EQ(plan(1, 16, "FP8").kv_page_bytes, bf16 / 2);
  EXPECT_EQ(plan(1, 32).working_memory_per_rank, 2 * plan(1, 16).working_memory_per_rank);
  const ep::DispatchShape shape = dispatch_shape(
      config_, {.num_ranks = 2, .num_slots = config_.routing.num_experts, .max_num_tokens = 16},
      format_);
  EXPECT_EQ(plan(2, 16).symmetric_memory_per_rank, ep::BufferLayout(shape).segment_bytes());
}

TEST(MemoryPlan, RanksShareOnlyTheDenseWeights) {
  const MemoryPlan plan{.num_ranks = 4,
                        .dense_weights = 1000,
                        .slots_per_rank = 100,
                        .symmetric_memory_per_rank = 10,
                        .working_memory_per_rank = 1};
  EXPECT_EQ(plan.per_rank(), 111u);
  EXPECT_EQ(plan.bytes_without_cache(), 1444u);
}

TEST(MemoryPlan, AStateIsNeededOnEveryRankOfItsStage) {
  const std::array<MemoryPlan, 2> stages = {MemoryPlan{.num_ranks = 2, .state_bytes = 64},
                                            MemoryPlan{.num_ranks = 2, .state_bytes = 192}};
  EXPECT_EQ(fewest_state_bytes(stages), 2u * 64 + 2 * 192);
  EXPECT_EQ(fullest(stages).state_bytes, 192u);
}

TEST(MemoryPlan, StatesTakeAtMostHalfOfTheMemoryForCaches) {
  EXPECT_EQ(state_slots_in(1e6, 1000, 8, false), 8);
  EXPECT_EQ(state_slots_in(1e6, 1000, 8, true), 16);
  EXPECT_EQ(state_slots_in(20e3, 1000, 8, true), 10);
  EXPECT_EQ(state_slots_in(20e3, 1000, 16, false), 10);
  EXPECT_EQ(state_slots_in(1999, 1000, 8, true), 0);
}

// Parameters as the models' cards state them, in billions.
TEST(MemoryPlan, PublishedModels) {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  const std::string dir = data == nullptr ? "" : data + std::string("/model_configs/");
  if (!std::filesystem::is_directory(dir)) {
    GTEST_SKIP() << "WIDEEP_DATA_DIR/model_configs is not there";
  }
  struct Published {
    const char* model;
    double billions;
  };
  for (const auto& [name, billions] : {Published{"Qwen--Qwen3-30B-A3B", 30.5},
                                       {"Qwen--Qwen3-235B-A22B", 235.0},
                                       {"Qwen--Qwen3-Coder-480B-A35B-Instruct", 480.0},
                                       {"deepseek-ai--DeepSeek-V3", 671.0}}) {
    nlohmann::json json = model::read_json(dir + name + "_config.json");
    json.erase("quantization_config");
    const auto config = model::parse(json);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const MemoryPlan plan = plan_memory(
        *config,
        dispatch_shape(*config, {.num_slots = config->routing.num_experts, .max_num_tokens = 1},
                       WeightFormat::kF32),
        WeightFormat::kF32, Dtype::kF32);
    const uint64_t bytes = plan.dense_weights + plan.slots_per_rank;
    EXPECT_NEAR(static_cast<double>(bytes) / sizeof(float) / 1e9, billions, 0.005 * billions)
        << name;
  }
}

}  // namespace
}  // namespace wideep::run
