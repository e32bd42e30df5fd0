// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/block_type.h"

#include <algorithm>
#include <array>
#include <utility>

namespace wideep::tensor_files {
namespace {

constexpr std::array kTypes = {
    BlockTypeInfo{BlockType::kF32, 0, "F32", 1, 4},
    BlockTypeInfo{BlockType::kF16, 1, "F16", 1, 2},
    BlockTypeInfo{BlockType::kBf16, 30, "BF16", 1, 2},
    BlockTypeInfo{BlockType::kQ8_0, 8, "Q8_0", 32, 34},
    BlockTypeInfo{BlockType::kQ4_0, 2, "Q4_0", 32, 18},
    BlockTypeInfo{BlockType::kQ4_1, 3, "Q4_1", 32, 20},
    BlockTypeInfo{BlockType::kQ5_0, 6, "Q5_0", 32, 22},
    BlockTypeInfo{BlockType::kQ5_1, 7, "Q5_1", 32, 24},
    BlockTypeInfo{BlockType::kQ2K, 10, "Q2_K", 256, 84},
    BlockTypeInfo{BlockType::kQ3K, 11, "Q3_K", 256, 110},
    BlockTypeInfo{BlockType::kQ4K, 12, "Q4_K", 256, 144},
    BlockTypeInfo{BlockType::kQ5K, 13, "Q5_K", 256, 176},
    BlockTypeInfo{BlockType::kQ6K, 14, "Q6_K", 256, 210},
    BlockTypeInfo{BlockType::kIq4Nl, 20, "IQ4_NL", 32, 18},
    BlockTypeInfo{BlockType::kIq4Xs, 23, "IQ4_XS", 256, 136},
    BlockTypeInfo{BlockType::kMxfp4, 39, "MXFP4", 32, 17},
    BlockTypeInfo{BlockType::kI32, 26, "I32", 1, 4},
};

// The others, for messages; also those that ggml has given up, of which old files are left.
constexpr std::array<std::pair<uint32_t, std::string_view>, 25> kOtherNames = {{
    {4, "Q4_2"},        {5, "Q4_3"},        {9, "Q8_1"},        {15, "Q8_K"},  {16, "IQ2_XXS"},
    {17, "IQ2_XS"},     {18, "IQ3_XXS"},    {19, "IQ1_S"},      {21, "IQ3_S"}, {22, "IQ2_S"},
    {24, "I8"},         {25, "I16"},        {27, "I64"},        {28, "F64"},   {29, "IQ1_M"},
    {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"}, {35, "TQ2_0"},
    {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {40, "NVFP4"}, {41, "Q1_0"},
}};

constexpr bool is_in_order() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i].type) != i || kTypes[i].elements > kMaxBlockElements) {
      return false;
    }
  }
  return true;
}
static_assert(is_in_order());

}  // namespace

const BlockTypeInfo& block_type_info(BlockType type) { return kTypes[static_cast<size_t>(type)]; }

const BlockTypeInfo* find_block_type(uint32_t id) {
  const auto found = std::ranges::find(kTypes, id, &BlockTypeInfo::id);
  return found == kTypes.end() ? nullptr : &*found;
}

std::string_view ggml_type_name(uint32_t id) {
  if (const BlockTypeInfo* known = find_block_type(id)) return known->name;
  for (const auto& [other, name] : kOtherNames) {
    if (other == id) return name;
  }
  return "";
}

}  // namespace wideep::tensor_files
