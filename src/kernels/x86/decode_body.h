// SPDX-License-Identifier: Apache-2.0
//
// From the codes of a block to what tiles read: bf16 pairs or bytes, in the order of packed bf16
// and int8 panels, on the stack. A block is decoded once for up to kMaxMatmulRows rows.
// Included by matmul_body.h.
#pragma once

inline constexpr int kMaxBlockK = 128;

// Of int8: the codes as they lie.
struct NoDecoder {
  static const void* decode(const std::byte* block, const PackedShape&, int) { return block; }
};

struct Int4Decoder {
  alignas(64) uint8_t bytes[kMaxPanels][kMaxBlockK * kPanelWidth];

  const void* decode(const std::byte* block, const PackedShape& shape, int panel) {
    decode_int4(block, shape.group / 8, bytes[panel]);
    return bytes[panel];
  }
};

struct Fp8Decoder {
  alignas(64) Bf16 pairs[kMaxPanels][kMaxBlockK * kPanelWidth];

  const void* decode(const std::byte* block, const PackedShape& shape, int panel) {
    decode_e4m3(block, shape.group * kPanelWidth, pairs[panel]);
    return pairs[panel];
  }
};

struct Mxfp4Decoder {
  alignas(64) Bf16 pairs[kMaxPanels][kMaxBlockK * kPanelWidth];

  const void* decode(const std::byte* block, const PackedShape&, int panel) {
    decode_mxfp4(block, block + 4 * kPanelWidth, pairs[panel]);
    return pairs[panel];
  }
};

struct Nvfp4Decoder {
  alignas(64) Bf16 pairs[kMaxPanels][kMaxBlockK / 2 * kPanelWidth];

  const void* decode(const std::byte* block, const PackedShape&, int panel) {
    decode_nvfp4(block, block + 4 * kPanelWidth, pairs[panel]);
    return pairs[panel];
  }
};
