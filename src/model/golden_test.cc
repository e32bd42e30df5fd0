// SPDX-License-Identifier: Apache-2.0
//
// The forward pass against Hugging Face's: tests/golden/README.md describes the files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/aligned_bytes.h"
#include "formats/safetensors.h"
#include "model/latent_form.h"
#include "model/model.h"
#include "transport/rank_threads.h"
#include "weights/checkpoint.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;

const std::string kModels = WIDEEP_SOURCE_DIR "/tests/golden/models";

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <typename T>
std::vector<T> values(const formats::SafetensorsFile& file, const std::string& name) {
  const auto* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  std::vector<T> out(entry->num_elements());
  std::memcpy(out.data(), entry->bytes.data(), entry->bytes.size());
  return out;
}

struct Output : MoeObserver {
  std::vector<float> logits;     // [T, V]
  std::vector<int32_t> experts;  // [moe layer][T, k]

  void on_layer(const MoeLayerRecord& record) override {
    experts.insert(experts.end(), record.experts.begin(), record.experts.end());
  }
};

struct RunOptions {
  WeightFormat format = WeightFormat::kBf16;
  std::optional<Dtype> cache;  // else as rows are dispatched
  int chunk = 0;               // tokens of an iteration; 0: the whole prompt
  int num_threads = 2;
  int prompt_length = 0;  // tokens that have the role of a prompt; 0: all
};

// One rank, one prompt, all logits.
Result<Output> run_model(const std::string& dir, const kernels::Kernels& kernels,
                         const RunOptions& options, const std::vector<int32_t>& ids) {
  const WeightFormat format = options.format;
  auto config = read_model_config(dir);
  if (!config.ok()) return config.status();
  auto checkpoint = weights::Checkpoint::open(dir);
  if (!checkpoint.ok()) return checkpoint.status();
  const weights::WeightLoader loader(*checkpoint, format);
  auto model_weights = ModelWeights::load(*config, loader);
  if (!model_weights.ok()) return model_weights.status();

  const int num_experts = config->routing.num_experts;
  balance::ModelPlacement placement;
  placement.num_slots = num_experts;
  for (int layer = 0; layer < config->num_layers; ++layer) {
    if (config->is_moe_layer[layer]) {
      placement.layers[layer] = *balance::linear_placement(num_experts, 1);
    }
  }
  auto slots = ExpertSlots::load(*config, loader, placement, 0);
  if (!slots.ok()) return slots.status();

  const Dtype dtype = kernels::row_dtype(format);
  const size_t row_bytes = config->hidden_size * dtype_bytes(dtype);
  const ep::BufferLayout layout({.ep_size = 1,
                                 .num_experts = num_experts,
                                 .slots_per_rank = num_experts,
                                 .top_k = config->routing.top_k,
                                 .row_bytes = row_bytes,
                                 .result_bytes = row_bytes,
                                 .max_tokens = static_cast<int>(ids.size())});
  auto memory = transport::SharedMemory::create(1, layout.segment_bytes());
  if (!memory.ok()) return memory.status();
  transport::Endpoint endpoint(*memory, 0, std::chrono::milliseconds(1000));
  base::ThreadPool pool(options.num_threads);
  MoeRunner moe(*config, placement, *slots, endpoint, layout, {.row_dtype = dtype});
  Output output;
  moe.set_observer(&output);
  Model model(*config, *model_weights, Compute(kernels, pool), moe);

  const KvLayout kv(*config, options.cache.value_or(kernels::row_dtype(format)));
  std::vector<base::AlignedBytes> memory_of_pages;
  PageList pages;
  for (size_t at = 0; at < ids.size(); at += kernels::kPageTokens) {
    memory_of_pages.emplace_back(kv.page_bytes());
    pages.push_back(memory_of_pages.back().data());
  }
  const int prompt_length =
      options.prompt_length > 0 ? options.prompt_length : static_cast<int>(ids.size());
  const size_t chunk = options.chunk > 0 ? static_cast<size_t>(options.chunk) : ids.size();
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    Batch batch;
    for (size_t i = begin; i < std::min(begin + chunk, ids.size()); ++i) {
      batch.ids.push_back(ids[i]);
      batch.positions.push_back(static_cast<int32_t>(i));
      batch.prompt_lengths.push_back(prompt_length);
      batch.pages.push_back(&pages);
      batch.logit_rows.push_back(static_cast<int32_t>(i - begin));
    }
    std::vector<float> logits;
    const auto iteration = static_cast<int64_t>(begin / chunk);
    const Status status = model.forward(batch, kv, iteration, &logits);
    if (!status.ok()) return status;
    output.logits.insert(output.logits.end(), logits.begin(), logits.end());
  }
  return output;
}

double largest_magnitude(const std::vector<float>& values) {
  double largest = 0.0;
  for (float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

double root_mean_square_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// golden top_k is [T, layer, k]; ours [layer][T, k].
std::vector<int32_t> by_layer(const std::vector<int32_t>& golden, size_t tokens, size_t layers,
                              size_t k) {
  std::vector<int32_t> out;
  for (size_t l = 0; l < layers; ++l) {
    for (size_t t = 0; t < tokens; ++t) {
      const auto row = golden.begin() + static_cast<std::ptrdiff_t>((t * layers + l) * k);
      out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(k));
    }
  }
  return out;
}

struct GoldenCase {
  std::string model;
  const kernels::Kernels* kernels;
};

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    if (!GetParam().kernels->supported()) GTEST_SKIP() << "not supported by this processor";
  }
};

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> all;
  for (const std::string& name : model_names()) {
    for (const kernels::Kernels* table : kernels::all_kernels()) all.push_back({name, table});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Model, Golden, testing::ValuesIn(golden_cases()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.model, test.param.kernels->isa);
});

TEST_P(Golden, Float32LogitsAndExpertsAreTransformers) {
  const std::string dir = kModels + "/" + GetParam().model;
  const auto golden = formats::SafetensorsFile::open(dir + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  for (int p = 0; p < 3; ++p) {
    const auto ids = values<int32_t>(*golden, fmt::format("p{}.ids", p));
    const auto output = run_model(dir, *GetParam().kernels, {WeightFormat::kF32}, ids);
    ASSERT_TRUE(output.ok()) << output.status().message();
    const auto expected = values<float>(*golden, fmt::format("p{}.logits_f32", p));
    EXPECT_LE(largest_difference(output->logits, expected), 1e-4 * largest_magnitude(expected));
    const auto& shape = golden->find(fmt::format("p{}.top_k", p))->shape;
    EXPECT_EQ(output->experts, by_layer(values<int32_t>(*golden, fmt::format("p{}.top_k", p)),
                                        shape[0], shape[1], shape[2]));
  }
}

// The tolerance is what bfloat16 costs transformers itself on the same prompt: rounding weights'
// inputs to 8 bits, in whatever order, may not move our logits further from the float32 ones (twice
// as far for the single worst of thousands, as far on average).
TEST_P(Golden, Bf16LogitsAreNoFurtherFromFloat32ThanTransformersAre) {
  const std::string dir = kModels + "/" + GetParam().model;
  const auto golden = formats::SafetensorsFile::open(dir + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  for (int p = 0; p < 3; ++p) {
    const auto ids = values<int32_t>(*golden, fmt::format("p{}.ids", p));
    const auto output = run_model(dir, *GetParam().kernels, {WeightFormat::kBf16}, ids);
    ASSERT_TRUE(output.ok()) << output.status().message();
    const auto exact = values<float>(*golden, fmt::format("p{}.logits_f32", p));
    const auto theirs = values<float>(*golden, fmt::format("p{}.logits_bf16", p));
    EXPECT_LE(largest_difference(output->logits, exact), 2 * largest_difference(theirs, exact));
    EXPECT_LE(root_mean_square_difference(output->logits, exact),
              root_mean_square_difference(theirs, exact));
  }
}

// All prompts of a golden file in one, long enough for two pages of the cache.
std::vector<int32_t> long_prompt(const formats::SafetensorsFile& golden) {
  std::vector<int32_t> ids;
  for (int p : {2, 1, 2}) {
    const auto more = values<int32_t>(golden, fmt::format("p{}.ids", p));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

TEST_P(Golden, ChunksOfAPromptAndThreadsChangeNoBit) {
  const std::string dir = kModels + "/" + GetParam().model;
  const auto golden = formats::SafetensorsFile::open(dir + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const auto ids = long_prompt(*golden);
  for (const RunOptions& whole : {RunOptions{WeightFormat::kF32}, RunOptions{WeightFormat::kBf16},
                                  RunOptions{WeightFormat::kBf16, Dtype::kF8E4M3},
                                  RunOptions{WeightFormat::kF32, Dtype::kBf16}}) {
    const auto expected = run_model(dir, *GetParam().kernels, whole, ids);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    for (int chunk : {5, 33}) {
      RunOptions parts = whole;
      parts.chunk = chunk;
      parts.num_threads = 1;
      const auto output = run_model(dir, *GetParam().kernels, parts, ids);
      ASSERT_TRUE(output.ok()) << output.status().message();
      EXPECT_EQ(output->logits, expected->logits) << "chunk " << chunk;
    }
  }
}

// What a cache may keep for whom: whether generated tokens are the same bits as those of a prompt.
TEST_P(Golden, RolesDifferWhereTheConfigSaysSo) {
  const std::string dir = kModels + "/" + GetParam().model;
  const auto golden = formats::SafetensorsFile::open(dir + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const auto ids = long_prompt(*golden);
  const RunOptions prompt{WeightFormat::kBf16};
  RunOptions generated = prompt;
  generated.prompt_length = 1;
  const auto as_prompt = run_model(dir, *GetParam().kernels, prompt, ids);
  const auto as_generated = run_model(dir, *GetParam().kernels, generated, ids);
  ASSERT_TRUE(as_prompt.ok() && as_generated.ok());
  const auto config = read_model_config(dir);
  EXPECT_EQ(as_prompt->logits != as_generated->logits, roles_differ(*config));
  EXPECT_TRUE(config->is_mla() || !roles_differ(*config));
}

// Tokens before the first one that chooses other experts in one run than in the other.
size_t tokens_of_equal_experts(const std::vector<int32_t>& a, const std::vector<int32_t>& b,
                               size_t num_tokens, size_t top_k) {
  size_t equal = num_tokens;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) equal = std::min(equal, i / top_k % num_tokens);
  }
  return equal;
}

// A cached element is off by 2^-4 of itself at most, 4 % on average; the layers' shares of it add
// up to no more than a tenth of the logits. From where a token chooses other experts on, these
// random models generate entirely different texts.
TEST_P(Golden, AnFp8CacheStaysNearUntilExpertsDiffer) {
  const std::string dir = kModels + "/" + GetParam().model;
  const auto golden = formats::SafetensorsFile::open(dir + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const auto ids = long_prompt(*golden);
  auto exact = run_model(dir, *GetParam().kernels, {WeightFormat::kBf16}, ids);
  auto output = run_model(dir, *GetParam().kernels, {WeightFormat::kBf16, Dtype::kF8E4M3}, ids);
  ASSERT_TRUE(exact.ok() && output.ok());
  const auto top_k = static_cast<size_t>(read_model_config(dir)->routing.top_k);
  const size_t equal = tokens_of_equal_experts(exact->experts, output->experts, ids.size(), top_k);
  if (equal == 0) GTEST_SKIP() << "the first token chooses other experts";
  const size_t vocab = exact->logits.size() / ids.size();
  exact->logits.resize(equal * vocab);
  output->logits.resize(equal * vocab);
  const std::vector<float> nothing(exact->logits.size());
  const double size = root_mean_square_difference(exact->logits, nothing);
  const double moved = root_mean_square_difference(output->logits, exact->logits);
  RecordProperty("tokens", std::to_string(equal));
  EXPECT_GT(moved, 0.0);
  EXPECT_LT(moved, 0.1 * size) << "over " << equal << " tokens";
}

// Of each of the first tokens' logits: the root of the difference's power over that of `exact`.
std::vector<double> relative_differences(const std::vector<float>& a,
                                         const std::vector<float>& exact, size_t num_tokens,
                                         size_t vocab) {
  std::vector<double> all;
  for (size_t token = 0; token < num_tokens; ++token) {
    double off = 0.0, size = 0.0;
    for (size_t i = token * vocab; i < (token + 1) * vocab; ++i) {
      off += std::pow(double{a[i]} - double{exact[i]}, 2);
      size += double{exact[i]} * double{exact[i]};
    }
    all.push_back(std::sqrt(off / size));
  }
  return all;
}

// How far each token of a prompt is off, up to the first one that chooses other experts.
std::vector<double> differences_of_prompt(const std::string& dir, WeightFormat format,
                                          const formats::SafetensorsFile& golden, int p) {
  const auto ids = values<int32_t>(golden, fmt::format("p{}.ids", p));
  const auto exact = values<float>(golden, fmt::format("p{}.logits_f32", p));
  const auto& shape = golden.find(fmt::format("p{}.top_k", p))->shape;
  const auto experts =
      by_layer(values<int32_t>(golden, fmt::format("p{}.top_k", p)), shape[0], shape[1], shape[2]);
  const auto output = run_model(dir, **kernels::select_kernels(nullptr), {.format = format}, ids);
  EXPECT_TRUE(output.ok()) << output.status().message();
  if (!output.ok()) return {};
  const size_t equal = tokens_of_equal_experts(output->experts, experts, ids.size(), shape[2]);
  return relative_differences(output->logits, exact, equal, exact.size() / ids.size());
}

// A format's rounding noise is a share of each product's size: what one product adds to its input's
// relative error. Errors of a path's products are independent and add as squares; a path through
// these models has fewer than 36 products. That holds until a token chooses other experts, which
// four bits make some models do at the first token, groups of experts even eight: a whole group
// falls out. Nothing is claimed of those.
struct FormatNoise {
  WeightFormat format;
  double share;  // root of noise over signal: kernels/coded_matrix_test.cc has the decibels
};

class GoldenPrecision : public testing::TestWithParam<FormatNoise> {};

INSTANTIATE_TEST_SUITE_P(Format, GoldenPrecision,
                         testing::Values(FormatNoise{WeightFormat::kFp8, 0.027},
                                         FormatNoise{WeightFormat::kInt8, 0.0085},  // both operands
                                         FormatNoise{WeightFormat::kInt4, 0.10},
                                         FormatNoise{WeightFormat::kMxfp4, 0.14},
                                         FormatNoise{WeightFormat::kNvfp4, 0.105}),
                         [](const auto& test) {
                           return std::string(kernels::weight_format_name(test.param.format));
                         });

TEST_P(GoldenPrecision, LogitsAreAsNearToFloat32AsTheCodesAllow) {
  const auto& [format, share] = GetParam();
  size_t num_compared = 0;
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    const std::string dir = kModels + "/" + name;
    const auto golden = formats::SafetensorsFile::open(dir + "/golden.safetensors");
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    std::vector<double> off;
    for (int p = 0; p < 3; ++p) {
      const auto more = differences_of_prompt(dir, format, *golden, p);
      off.insert(off.end(), more.begin(), more.end());
    }
    if (off.empty()) continue;
    num_compared += off.size();
    std::sort(off.begin(), off.end());
    EXPECT_LE(off[off.size() / 2], 6 * share);
    EXPECT_GE(off[0], share / 8) << "are these the format's codes?";
  }
  RecordProperty("tokens", std::to_string(num_compared));
  EXPECT_GE(num_compared, 14u);
}

}  // namespace
}  // namespace wideep::model
