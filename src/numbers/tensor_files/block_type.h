// SPDX-License-Identifier: Apache-2.0
//
// The types of tensors in GGUF files (ggml's types): plain elements, or blocks of consecutive
// elements of a row, each block with its codes and scales. Sources: ggml/docs/gguf.md and
// ggml-common.h of ggml; constants.py of the package gguf.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace wideep::tensor_files {

// The types that wideep reads.
enum class BlockType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
  kI32,  // tables of numbers, no weights
};

struct BlockTypeInfo {
  BlockType type;
  uint32_t id;            // in files
  std::string_view name;  // "Q4_K"
  int elements;           // of a block
  int bytes;              // of a block
};

const BlockTypeInfo& block_type_info(BlockType type);
inline std::string_view block_type_name(BlockType type) { return block_type_info(type).name; }
// nullptr: wideep does not read this type.
const BlockTypeInfo* find_block_type(uint32_t id);
// What ggml calls the type: "IQ2_XXS"; "" if it is none of ggml's.
std::string_view ggml_type_name(uint32_t id);

// The largest block of all types.
inline constexpr int kMaxBlockElements = 256;

}  // namespace wideep::tensor_files
