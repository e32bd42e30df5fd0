// SPDX-License-Identifier: Apache-2.0
//
// Decodes the blocks of GGUF tensors (tensor_files/block_type.h), with the arithmetic of ggml: the
// float32 values are those of the package gguf, bit for bit. Sources: ggml-common.h and
// ggml-quants.c of ggml, quants.py of the package.
//
//   type             value of an element                        scales
//   Q8_0             d · code                                   d f16 per 32; code int8
//   Q4_0, Q5_0       d · (code − 8), d · (code − 16)            d f16 per 32
//   Q4_1, Q5_1       d · code + m                               d and m f16 per 32
//   Q2_K, Q4_K, Q5_K d · scale · code − dmin · minimum          d, dmin f16 per 256; scales and
//                                                               minimums of 4 or 6 bits per 16
//                                                               (Q2_K) or 32
//   Q3_K             d · (scale − 32) · (code − 4)              d f16 per 256; scales per 16
//   Q6_K             d · scale · (code − 32)                    d f16 per 256; int8 scales per 16
//   IQ4_NL           d · table[code]                            d f16 per 32
//   IQ4_XS           d · (scale − 32) · table[code]             d f16 per 256; scales per 32
//   MXFP4            2^(e − 128) · twice e2m1                   e8m0 per 32
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor_files/block_type.h"

namespace wideep::weights {

// Where the codes and scales of consecutive blocks go, one byte for a code. Element i is
// scales[i / group] · (codes[i] − offset) + minimums[i / group] in float32, in this order.
struct UnpackedBlocks {
  uint8_t* codes = nullptr;
  float* scales = nullptr;
  float* minimums = nullptr;  // only if has_minimums(type)
};

// The elements that share a scale; 0: plain elements.
int group_of(tensor_files::BlockType type);
// What is subtracted from codes of this type.
int offset_of(tensor_files::BlockType type);
bool has_minimums(tensor_files::BlockType type);

// The blocks of `count` elements. REQUIRES: whole blocks, group_of(type) > 0, and type is not
// MXFP4.
void unpack_blocks(tensor_files::BlockType type, const std::byte* blocks, int64_t count,
                   const UnpackedBlocks& out);

// The scales of a block of 256 as whole numbers: element i is
// d · scales[i / group] · codes[i] − dmin · minimums[i / group].
struct TwoLevelScales {
  uint8_t scales[16];
  uint8_t minimums[16];
  float d = 0.0f;
  float dmin = 0.0f;
};
// Whether blocks have two levels of scales: Q2_K to Q6_K and IQ4_XS.
bool has_two_levels(tensor_files::BlockType type);
// Of types without minimums, these are scale · offset, and where the file's scale is negative, the
// code is counted from above. REQUIRES: has_two_levels(type).
void unpack_two_levels(tensor_files::BlockType type, const std::byte* block, uint8_t* codes,
                       TwoLevelScales* out);
// A block of Q4_K with two codes in a byte, the first in the lower four bits.
void unpack_q4k_pairs(const std::byte* block, std::byte* pairs, TwoLevelScales* out);

// The codes and the scale of a block of MXFP4: e2m1 in the lower four bits of each of 32 bytes.
uint8_t unpack_mxfp4(const std::byte* block, uint8_t* codes);

// Decodes `count` elements from the begin of a row on. REQUIRES: whole blocks.
void dequantize_blocks(tensor_files::BlockType type, const std::byte* blocks, int64_t count,
                       float* out);

}  // namespace wideep::weights
