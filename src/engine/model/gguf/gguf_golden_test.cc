// SPDX-License-Identifier: Apache-2.0
//
// The golden models of tests/golden/family_models and models as GGUF files, converted by llama.cpp
// (tests/golden/make_gguf_models.py): the answers must be those of transformers.
// $WIDEEP_GOLDEN_GGUF names another directory of files; what lies beside MODEL.gguf as
// MODEL.safetensors are then the expected answers (scripts/test_gguf.sh: those of llama.cpp).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "model/golden_testing.h"
#include "tensor_files/gguf.h"

namespace wideep::model {
namespace {

namespace fs = std::filesystem;

std::string files_dir() {
  const char* other = std::getenv("WIDEEP_GOLDEN_GGUF");
  return other != nullptr ? other : WIDEEP_SOURCE_DIR "/tests/golden/gguf/models";
}

// "gpt_oss_plain" of each file, or the first of several.
std::vector<std::string> model_names() {
  std::vector<std::string> names;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(files_dir(), absent)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string golden_of(const std::string& model) {
  const std::string beside = files_dir() + "/" + model + ".safetensors";
  if (fs::exists(beside)) return beside;
  const std::string golden = WIDEEP_SOURCE_DIR "/tests/golden/";
  for (const char* folder : {"family_models/", "models/"}) {
    const std::string path = golden + folder + model + "/golden.safetensors";
    if (fs::exists(path)) return path;
  }
  return "";
}

class GgufGolden : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Model, GgufGolden, testing::ValuesIn(model_names()),
                         [](const auto& test) { return test.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GgufGolden);

TEST_P(GgufGolden, Float32LogitsAreTransformers) {
  const auto golden = tensor_files::SafetensorsFile::open(golden_of(GetParam()));
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const kernels::Kernels* kernels = kernels::select_kernels(nullptr).value();
  const std::string path = files_dir() + "/" + GetParam() + ".gguf";
  int prompt = 0;
  double worst = 0.0;
  for (; golden->find(fmt::format("p{}.ids", prompt)) != nullptr; ++prompt) {
    const auto ids = values<int32_t>(*golden, fmt::format("p{}.ids", prompt));
    const auto output = run_model(path, *kernels, {WeightFormat::kF32}, ids);
    ASSERT_TRUE(output.ok()) << output.status().message();
    const auto expected = values<float>(*golden, fmt::format("p{}.logits_f32", prompt));
    const double off = largest_difference(output->logits, expected) / largest_magnitude(expected);
    EXPECT_LE(off, 1e-4);
    worst = std::max(worst, off);
  }
  EXPECT_GT(prompt, 0);
  RecordProperty("worst_difference", fmt::format("{:.1e}", worst));
}

}  // namespace
}  // namespace wideep::model
