// SPDX-License-Identifier: Apache-2.0
//
// The forward pass against Hugging Face's: tests/golden/README.md describes the files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/golden_testing.h"
#include "model/parts/latent_form.h"

namespace wideep::model {
namespace {

const std::string kModels = WIDEEP_SOURCE_DIR "/tests/golden/models";

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
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
  const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  double worst = 0.0;
  for (int p = 0; p < 3; ++p) {
    const auto ids = values<int32_t>(*golden, fmt::format("p{}.ids", p));
    const auto output = run_model(dir, *GetParam().kernels, {WeightFormat::kF32}, ids);
    ASSERT_TRUE(output.ok()) << output.status().message();
    const auto expected = values<float>(*golden, fmt::format("p{}.logits_f32", p));
    const double off = largest_difference(output->logits, expected) / largest_magnitude(expected);
    EXPECT_LE(off, 1e-4);
    worst = std::max(worst, off);
    const auto& shape = golden->find(fmt::format("p{}.top_k", p))->shape;
    EXPECT_EQ(output->experts, by_layer(values<int32_t>(*golden, fmt::format("p{}.top_k", p)),
                                        shape[0], shape[1], shape[2]));
  }
  RecordProperty("worst_difference", fmt::format("{:.1e}", worst));  // for docs/models.md
}

// The tolerance is what bfloat16 costs transformers itself on the same prompt: rounding weights'
// inputs to 8 bits, in whatever order, may not move our logits further from the float32 ones (twice
// as far for the single worst of thousands, as far on average).
TEST_P(Golden, Bf16LogitsAreNoFurtherFromFloat32ThanTransformersAre) {
  const std::string dir = kModels + "/" + GetParam().model;
  const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
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
std::vector<int32_t> long_prompt(const tensor_files::SafetensorsFile& golden) {
  std::vector<int32_t> ids;
  for (int p : {2, 1, 2}) {
    const auto more = values<int32_t>(golden, fmt::format("p{}.ids", p));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

TEST_P(Golden, ChunksOfAPromptAndThreadsChangeNoBit) {
  const std::string dir = kModels + "/" + GetParam().model;
  const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
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
  const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
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
  const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
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
                                          const tensor_files::SafetensorsFile& golden, int p) {
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
  std::vector<std::string> names = model_names();
  for (const char* ungated : {"nemotron_h_dense", "nemotron_h_plain"}) {
    names.push_back(std::string("../family_models/") + ungated);
  }
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string dir = kModels + "/" + name;
    const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
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
