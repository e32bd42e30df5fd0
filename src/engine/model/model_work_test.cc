// SPDX-License-Identifier: Apache-2.0
//
// Work of the committed shapes, each part by hand; with windows, against the positions that each
// token attends to, one after the other. A failure is a share of the limit, or a predicted time, of
// work that no step has to do.
#include "model/model_work.h"

#include <gtest/gtest.h>

#include <algorithm>

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

// ---- windows and chunks ----

TEST(LayerConfig, ReachesAsFarAsWindowAndChunkLetIt) {
  EXPECT_EQ(LayerConfig().reach(), 0);
  EXPECT_EQ(LayerConfig({.window = 5}).reach(), 5);
  EXPECT_EQ(LayerConfig({.chunk = 7}).reach(), 7);
  EXPECT_EQ(LayerConfig({.window = 5, .chunk = 7}).reach(), 5);
  EXPECT_EQ(LayerConfig({.window = 8, .chunk = 7}).reach(), 7);
}

// The first and the third of its four layers have windows of 128; 64 heads of 64, with 8 for keys
// and values.
ModelConfig windowed() { return committed_config("gpt-oss-3.5b.json"); }
constexpr int kWindow = 128;

// The same model without windows, or with chunks instead.
ModelConfig with_reach(ModelConfig config, int window, int chunk) {
  for (const size_t layer : {0, 2}) {
    EXPECT_EQ(config.layers[layer].window, kWindow);
    config.layers[layer].window = window;
    config.layers[layer].chunk = chunk;
  }
  return config;
}

TEST(WorkOf, LayersWithAWindowAttendToNothingBeyondIt) {
  const ModelConfig config = windowed(), plain = with_reach(config, 0, 0);
  const ModelConfig chunks = with_reach(config, 0, kWindow);
  constexpr int kCount = 3;
  for (const int cached : {0, 1, 126, 127, 128, 129, 1000, 100'000}) {
    const StepShape shape = decode_step(kCount, cached, 7);
    const Work work = work_of(config, WeightFormat::kBf16, shape);
    const Work all = work_of(plain, WeightFormat::kBf16, shape);
    const double not_attended = kCount * 2.0 * std::max(0, cached + 1 - kWindow);
    const double not_read = kCount * 2.0 * std::max(0, cached - (kWindow - 1));
    EXPECT_DOUBLE_EQ(all.operations - work.operations, 2 * 64 * (64 + 64) * not_attended) << cached;
    EXPECT_DOUBLE_EQ(all.bytes - work.bytes, 2 * 8 * 64 * 2.0 * not_read) << cached;
    const Work of_chunks = work_of(chunks, WeightFormat::kBf16, shape);
    EXPECT_EQ(of_chunks.operations, work.operations);
    EXPECT_EQ(of_chunks.bytes, work.bytes);
  }
}

// The bound of a prompt is exact up to the window, and at most as far off as its header says beyond.
TEST(WorkOf, AWindowBoundsWhatAPromptAttendsTo) {
  int64_t of_window = 0, of_chunks = 0;
  for (int length = 1; length <= 1000; ++length) {
    of_window += std::min(length, kWindow);
    of_chunks += (length - 1) % kWindow + 1;
    const int64_t bound = prompt_step(1, length, 0).attended_within(kWindow);
    EXPECT_GE(bound, of_window);
    EXPECT_LE(3 * bound, 4 * of_window) << length;
    EXPECT_LE(10 * bound, 23 * of_chunks) << length;
    if (length <= kWindow) {
      EXPECT_EQ(bound, of_window);
    }
  }
  EXPECT_EQ(prompt_step(1, 1000, 0).attended_within(0), 1000 * 1001 / 2);
  // In the model: two layers attend to all.
  const ModelConfig config = windowed();
  const StepShape prompt = prompt_step(2, 512, 0);
  const double all = work_of(with_reach(config, 0, 0), WeightFormat::kBf16, prompt).operations;
  const double work = work_of(config, WeightFormat::kBf16, prompt).operations;
  EXPECT_DOUBLE_EQ(all - work, 2 * 64 * (64 + 64) * 2.0 * 2 * (512.0 * 513 / 2 - 512.0 * kWindow));
}

}  // namespace
}  // namespace wideep::model
