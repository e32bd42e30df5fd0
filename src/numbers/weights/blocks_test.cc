// SPDX-License-Identifier: Apache-2.0
#include "weights/blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "tensor_files/gguf.h"

namespace wideep::weights {
namespace {

using tensor_files::BlockType;
using tensor_files::GgufFile;
using tensor_files::GgufTensor;

std::vector<float> decoded(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  dequantize_blocks(tensor.type, tensor.bytes.data(), tensor.num_elements(), values.data());
  return values;
}

// tests/golden/make_gguf_blocks.py made the file.
TEST(Blocks, DecodeToTheBitsOfThePackageGguf) {
  const auto file = GgufFile::open(WIDEEP_SOURCE_DIR "/tests/golden/gguf/blocks.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  int num_types = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    const auto expected = file->tensors().find(name + ".values");
    if (expected == file->tensors().end()) continue;
    ++num_types;
    EXPECT_EQ(tensor_files::block_type_name(tensor.type), name);
    const std::vector<float> values = decoded(tensor), golden = decoded(expected->second);
    ASSERT_EQ(values.size(), golden.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(golden[i]))
          << name << " at " << i << ": " << values[i] << " instead of " << golden[i];
    }
  }
  EXPECT_EQ(num_types, 15);  // all but F32
}

}  // namespace
}  // namespace wideep::weights
