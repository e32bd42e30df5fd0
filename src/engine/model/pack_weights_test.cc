// SPDX-License-Identifier: Apache-2.0
//
// A model that is loaded from its packed file reads nothing of its checkpoint: it gets the bits of
// one checkpoint while it has another one.
#include "model/pack_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/scratch_directory.h"
#include "model/model.h"
#include "model/model_division.h"
#include "model/model_forms.h"
#include "model/parts/expert_slots.h"
#include "model/tensor_list.h"
#include "parallel/initial_placement.h"
#include "weights/random_tensors.h"

namespace wideep::model {
namespace {

namespace fs = std::filesystem;
using kernels::WeightFormat;
using packed::PackedFile;
using packed::PackedWriter;
using weights::RandomTensors;
using weights::WeightLoader;

struct Case {
  std::string model;
  std::optional<WeightFormat> format;
  int num_slices = 1;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::string folder = WIDEEP_SOURCE_DIR "/tests/golden/family_models";
  for (const auto& entry : fs::directory_iterator(folder)) {
    all.push_back({entry.path().filename(), std::nullopt});
  }
  std::ranges::sort(all, {}, &Case::model);
  for (const WeightFormat format :
       {WeightFormat::kFp8, WeightFormat::kInt4, WeightFormat::kNvfp4}) {
    all.push_back({all.front().model, format});
  }
  all.push_back({all.front().model, std::nullopt, 2});
  return all;
}

void expect_same(const base::AlignedBytes& a, const base::AlignedBytes& b) {
  ASSERT_EQ(a.size(), b.size());
  if (a.size() == 0) return;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0);
}

TEST(PackWeights, AModelIsLoadedFromItsPackedFileAlone) {
  base::ThreadPool threads(2);
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.model);
    const auto config =
        read_model_config(WIDEEP_SOURCE_DIR "/tests/golden/family_models/" + each.model);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const base::ScratchDirectory scratch;
    const RandomTensors tensors(1), others(2);
    auto writer = PackedWriter::open(scratch.file("packed"), {.model = "", .record_class = "c"});
    ASSERT_TRUE(writer.ok());
    const PackOrder order{.config = *config,
                          .tensors = tensors,
                          .format = each.format,
                          .num_slices = each.num_slices,
                          .threads = &threads};
    const Status packed = pack_weights(order, *writer);
    ASSERT_TRUE(packed.ok()) << packed.message();
    ASSERT_TRUE(writer->finish().ok());
    const auto file = PackedFile::open(scratch.file("packed"), "c");
    ASSERT_TRUE(file.ok()) << file.status().message();

    const WeightLoader from_tensors(tensors, each.format);
    WeightLoader from_file(others, each.format);
    from_file.take_from(*file);
    from_file.tell_parts([](const std::string& part, auto, float) {
      return failed(part + " is not in the packed file");
    });
    const auto expected = ModelWeights::load(*config, from_tensors);
    const auto found = ModelWeights::load(*config, from_file);
    ASSERT_TRUE(expected.ok() && found.ok()) << found.status().message();
    expect_same(expected->embedding, found->embedding);
    expect_same(expected->lm_head.bytes, found->lm_head.bytes);
    EXPECT_EQ(expected->final_norm, found->final_norm);
    for (size_t layer = 0; layer < expected->layers.size(); ++layer) {
      const Layer &a = expected->layers[layer], &b = found->layers[layer];
      EXPECT_EQ(a.mixer_norm, b.mixer_norm);
      expect_same(a.mlp.bytes, b.mlp.bytes);
      if (a.moe == nullptr) continue;
      expect_same(a.moe->router.bytes, b.moe->router.bytes);
      EXPECT_EQ(a.moe->experts_of_ids, b.moe->experts_of_ids);
      expect_same(a.moe->shared.bytes, b.moe->shared.bytes);
    }
    if (config->routing.num_experts == 0) continue;
    const auto shape = experts_shape(*config, from_tensors, each.num_slices);
    base::AlignedBytes a(shape.record_bytes()), b(shape.record_bytes());
    for (const int layer : moe_layers(*config)) {
      for (int expert = 0; expert < config->routing.num_experts; ++expert) {
        for (int slice = 0; slice < each.num_slices; ++slice) {
          const std::string prefix = expert_prefix(layer, expert);
          std::memset(a.data(), 0, a.size());  // what lies between matrices is nobody's
          ASSERT_TRUE(weights::load_expert(from_tensors, shape, prefix, a.data(), slice).ok());
          ASSERT_TRUE(weights::load_expert(from_file, shape, prefix, b.data(), slice).ok());
          ASSERT_TRUE(from_tensors.run().ok());
          const Status loaded = from_file.run();
          ASSERT_TRUE(loaded.ok()) << loaded.message();
          ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << prefix;
        }
      }
    }
  }
}

// A checkpoint that changes once some steps are written.
class ChangingTensors : public RandomTensors {
 public:
  explicit ChangingTensors(int steps) : RandomTensors(1), steps_(steps) {}
  Status check_unchanged() const override {
    return steps_-- == 0 ? invalid_input("the checkpoint has changed") : Status();
  }

 private:
  mutable int steps_;
};

// After any step; the one that did not end counts for nothing.
TEST(PackWeights, GoesOnWhereAnotherProcessHasEnded) {
  base::ThreadPool threads(1);
  const auto config =
      read_model_config(WIDEEP_SOURCE_DIR "/tests/golden/family_models/" + cases().front().model);
  ASSERT_TRUE(config.ok());
  const base::ScratchDirectory scratch;
  uint64_t read = 0;
  const auto pack = [&](int steps) {
    const ChangingTensors tensors(steps);
    auto writer = PackedWriter::open(scratch.file("packed"), {.model = "", .record_class = "c"});
    EXPECT_TRUE(writer.ok());
    const PackOrder order{.config = *config,
                          .tensors = tensors,
                          .threads = &threads,
                          .progress = [&](uint64_t bytes) { read += bytes; }};
    return pack_weights(order, *writer).ok() && writer->finish().ok();
  };
  const auto first_bytes = [&] {
    const auto file = PackedFile::open(scratch.file("packed"), "c");
    EXPECT_TRUE(file.ok() && file->verify(threads, [](uint64_t) {}).ok());
    const auto bytes = file->bytes(file->parts().begin()->second);
    return std::pair(file->total_bytes(), std::vector<std::byte>(bytes.begin(), bytes.end()));
  };
  ASSERT_TRUE(pack(-1));
  const auto whole = first_bytes();
  const uint64_t all = std::exchange(read, 0);
  fs::remove_all(scratch.file("packed"));
  int tries = 1;
  while (!pack(1)) ASSERT_LT(++tries, 1000);
  EXPECT_GT(tries, 2);
  EXPECT_LT(read, 3 * all);
  EXPECT_EQ(first_bytes(), whole);
}

}  // namespace
}  // namespace wideep::model
