// SPDX-License-Identifier: Apache-2.0
#include "model/model_work.h"

#include <gtest/gtest.h>

#include "formats/files.h"
#include "model/kv_layout.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;

ModelConfig committed_config(const std::string& name) {
  const std::string path = WIDEEP_SOURCE_DIR "/bench/configs/" + name;
  const auto text = formats::read_file(path);
  EXPECT_TRUE(text.ok()) << path;
  auto config = parse_model_config(*text, path);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::move(config).value();
}

TEST(CountParameters, OfTheCommittedShapes) {
  const ParameterCount small = count_parameters(committed_config("qwen3-moe-1.3b.json"));
  EXPECT_NEAR(static_cast<double>(small.all), 1.307e9, 1e6);
  EXPECT_NEAR(static_cast<double>(small.active), 217e6, 1e6);
  const ModelConfig large = committed_config("large-experts.json");
  EXPECT_EQ(large.hidden_size, 7168);
  EXPECT_EQ(large.moe_intermediate_size, 2048);
}

// Each part by hand, for hidden 1024, 16 heads of 64 with 4 for keys and values, 64 experts top 8.
TEST(WorkOf, PromptOfTheSmallShape) {
  const ModelConfig config = committed_config("qwen3-moe-1.3b.json");
  const double attention = 1024.0 * 1024 * 2 + 1024.0 * 256 * 2;
  const double router = 1024.0 * 64;
  const double experts = 8 * 3 * 1024.0 * 512;
  const double scores = 2 * 1024.0 * (512 * 513 / 2);  // multiply-adds of all tokens in a layer
  const double all_rows = 512 * (12 * attention + 11 * (router + experts)) + 12 * scores;
  const double last_row = router + experts + 1024.0 * 32768;
  const Work work = work_of(config, WeightFormat::kBf16, prompt_step(1, 512, 0));
  EXPECT_DOUBLE_EQ(work.operations, 2 * (all_rows + last_row));
  EXPECT_NEAR(work.operations / 512, 352e6, 3e6);
}

TEST(WorkOf, BytesOfADecodeStep) {
  const ModelConfig config = committed_config("qwen3-moe-1.3b.json");
  const Work one = work_of(config, WeightFormat::kBf16, decode_step(1, 0, 12 * 8));
  EXPECT_NEAR(one.bytes, 434e6, 3e6);
  // Another sequence that chose no other experts adds a row of the embedding.
  const Work two = work_of(config, WeightFormat::kBf16, decode_step(2, 0, 12 * 8));
  EXPECT_DOUBLE_EQ(two.bytes - one.bytes, 2.0 * 1024);
  // An expert more, a position more in the cache.
  const Work more = work_of(config, WeightFormat::kBf16, decode_step(1, 0, 12 * 8 + 1));
  EXPECT_DOUBLE_EQ(more.bytes - one.bytes, 2.0 * 3 * 1024 * 512);
  const Work deeper = work_of(config, WeightFormat::kBf16, decode_step(1, 1, 12 * 8));
  EXPECT_DOUBLE_EQ(deeper.bytes - one.bytes, 2.0 * 12 * 2 * 4 * 64);
}

TEST(WorkOf, SmallerWeightsAreFewerBytesForTheSameOperations) {
  const ModelConfig config = committed_config("qwen3-moe-1.3b.json");
  const StepShape step = decode_step(8, 100, 500);
  const Work bf16 = work_of(config, WeightFormat::kBf16, step);
  const Work int8 = work_of(config, WeightFormat::kInt8, step);
  const Work f32 = work_of(config, WeightFormat::kF32, step);
  EXPECT_LT(int8.bytes, 0.62 * bf16.bytes);
  EXPECT_GT(f32.bytes, 1.9 * bf16.bytes);
  EXPECT_EQ(int8.operations, bf16.operations);
}

TEST(WorkOf, StepsAddUp) {
  const ModelConfig config = committed_config("qwen3-moe-1.3b.json");
  const StepShape a = decode_step(8, 100, 500), b = decode_step(8, 101, 490);
  StepShape sum = a;
  sum += b;
  const Work both = work_of(config, WeightFormat::kBf16, sum, 2);
  const Work first = work_of(config, WeightFormat::kBf16, a);
  const Work second = work_of(config, WeightFormat::kBf16, b);
  EXPECT_DOUBLE_EQ(both.bytes, first.bytes + second.bytes);
  EXPECT_DOUBLE_EQ(both.operations, first.operations + second.operations);
}

}  // namespace
}  // namespace wideep::model
