// SPDX-License-Identifier: Apache-2.0
//
// Packed files outlive the program that wrote them: whatever changes the bytes of a record, its
// layout or how numbers are rounded, needs a new packed::kVersion. Another version of the program
// would take the old bytes for the new ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>

#include "base/content_hash.h"
#include "packed/packed_file.h"
#include "weights/expert_record.h"

namespace wideep::weights {
namespace {

using kernels::WeightFormat;

// Numbers of a formula, from −1 to 1, exact in bf16.
class Formula : public TensorSource {
 public:
  using TensorSource::tensor;
  Result<const tensor_files::TensorEntry*> tensor(
      const std::string& name, const std::vector<int64_t>& shape) const override {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    std::vector<float>& values = values_.emplace_back();
    auto state = static_cast<uint32_t>(name.size() + shape.size());
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      values.push_back(static_cast<float>(static_cast<int>(state >> 25) - 64) / 64.0f);
    }
    return &entries_.emplace_back(tensor_files::TensorEntry{
        .dtype = Dtype::kF32, .shape = shape, .bytes = std::as_bytes(std::span(values))});
  }

 private:
  mutable std::deque<std::vector<float>> values_;
  mutable std::deque<tensor_files::TensorEntry> entries_;
};

// The second of three slices of an expert with biases.
std::string hash_of(WeightFormat format) {
  const Formula tensors;
  const WeightLoader loader(tensors, format);
  const ExpertShape shape{
      .format = format, .hidden = 512, .intermediate = 384, .num_slices = 3, .biased = true};
  base::AlignedBytes record(shape.record_bytes());
  EXPECT_TRUE(load_expert(loader, shape, "e", record.data(), 1).ok());
  const Status loaded = loader.run();
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  return fmt::format("{} bytes, {:016x}", record.size(),
                     base::content_hash(record.data(), record.size()));
}

struct Golden {
  WeightFormat format;
  const char* hash;
};

TEST(PackedLayout, AChangeNeedsANewVersion) {
  ASSERT_EQ(packed::kVersion, 1) << "write the new hashes here, too";
  for (const Golden& each : {
           Golden{WeightFormat::kF32, "799744 bytes, 13078a74f476755e"},
           Golden{WeightFormat::kBf16, "402432 bytes, 106b93e4a6721211"},
           Golden{WeightFormat::kFp8, "209984 bytes, 600a2e647d88a7f0"},
           Golden{WeightFormat::kInt8, "209984 bytes, 3a8fd29f7bf9cac4"},
           Golden{WeightFormat::kInt4, "116864 bytes, 94cf9b31efd2001a"},
           Golden{WeightFormat::kMxfp4, "110656 bytes, 96cf134e5ec0d760"},
           Golden{WeightFormat::kNvfp4, "116928 bytes, df130af20e531dc7"},
           Golden{WeightFormat::kInt4m, "136448 bytes, 9c1a654b3f12f4dd"},
           Golden{WeightFormat::kInt8m, "247040 bytes, 72304893cb3bfbf2"},
           Golden{WeightFormat::kInt4h, "129280 bytes, 099877c6f3b66379"},
           Golden{WeightFormat::kInt8h, "228608 bytes, 0dc24e1a4df4e357"},
       }) {
    EXPECT_EQ(hash_of(each.format), each.hash)
        << "records of " << kernels::weight_format_name(each.format)
        << " have other bytes than those in packed files of version " << packed::kVersion
        << ": if that is meant, add 1 to packed::kVersion (packed/packed_file.h), so that files of "
           "before are refused, and write the hashes found into this test";
  }
}

}  // namespace
}  // namespace wideep::weights
