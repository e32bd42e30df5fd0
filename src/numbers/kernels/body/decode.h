// SPDX-License-Identifier: Apache-2.0
//
// Decoding of weights: expands each format's codes to operands of steps (bf16 pairs, bytes or
// float32, in the order of packed bf16, int8 and float32 panels). One line (64 bytes) of codes
// makes kParts lines of operands:
//
//   Codes::expand(load_line(block + Codes::kFirstLine), operands);
//
// Included by body/matmul.h.
#pragma once

// Constants of a format:
//
//   kStrip           the number of panels that few rows read together (body/one_tile.h). A line of
//                    codes is kParts steps of a panel's chain, of four (int8) to six cycles each,
//                    and memory delivers a line in about six to ten cycles. So one panel is enough
//                    if a line is one step; other formats need several panels to keep the processor
//                    busy.
//   kNarrowRows      up to this many rows one panel is enough in any case: they wait for memory
//                    longer than for the chain
//   kTallRows        the most rows of one tile
//   kExpandsInTiles  with high tiles, each tile expands codes itself
//   kUnhintedRows    for Zen 4, see ForZen5 (body/one_tile.h)
//   kGroups          groups of scales in a block. 1: scales after the codes, if any. More: a group
//                    is kLinesOfGroup lines of codes, and the scales (group_scales) are bytes
//                    before all codes.

// 16 bytes as numbers.
inline F32x16 floats_of_codes(const std::byte* bytes) {
  return to_f32(bits_of(floats_of_bytes<0>(bytes, 0)));
}

// f32, bf16 and int8: codes are operands already.
struct PlainCodes {
  static constexpr int kParts = 1, kGroups = 1, kStrip = 1;
  static constexpr bool kExpandsInTiles = false;
  static constexpr int kNarrowRows = 0, kTallRows = 14, kUnhintedRows = 4;
  static constexpr size_t kFirstLine = 0;
  static void expand(Line codes, Line (&out)[1]) { out[0] = codes; }
};

struct Int4Codes {
  static constexpr int kParts = 2, kGroups = 1, kStrip = 4;
  static constexpr bool kExpandsInTiles = true;
  static constexpr int kNarrowRows = 2, kTallRows = 12, kUnhintedRows = 2;
  static constexpr size_t kFirstLine = 0;
  static void expand(Line codes, Line (&out)[2]) { expand_int4(codes, out); }
};

struct Fp8Codes {
  static constexpr int kParts = 2, kGroups = 1, kStrip = 4;
  static constexpr bool kExpandsInTiles = false;
  static constexpr int kNarrowRows = 0, kTallRows = 10, kUnhintedRows = 0;
  static constexpr size_t kFirstLine = 0;
  static void expand(Line codes, Line (&out)[2]) { expand_e4m3(codes, out); }
};

struct E2m1Codes {
  static constexpr int kParts = 2, kGroups = kGroupsOfBlock, kStrip = 4;
  static constexpr bool kExpandsInTiles = false;
  static constexpr int kNarrowRows = 2, kUnhintedRows = 2;
  static constexpr size_t kScaleSize = kPanelWidth, kFirstLine = kGroups * kScaleSize;
  static void expand(Line codes, Line (&out)[2]) { expand_e2m1(codes, out); }
};

struct Mxfp4Codes : E2m1Codes {
  static constexpr int kLinesOfGroup = 4, kTallRows = 10;
  static F32x16 group_scales(const std::byte* bytes) { return floats_of_bytes<23>(bytes, 0); }
};

struct Nvfp4Codes : E2m1Codes {
  static constexpr int kLinesOfGroup = 2, kTallRows = 8;
  static F32x16 group_scales(const std::byte* bytes) {
    return floats_of_bytes<20>(bytes, kHalfE5m3Offset);
  }
};

// Codes of int4m or int8m, in groups of `Group`. Minimums lie between the scales and the codes, and
// are not read here (FoldTwoLevels).
template <typename Codes, int Group>
struct TwoLevelCodes : Codes {
  static constexpr int kGroups = kTwoLevelBlock / Group;
  static constexpr int kLinesOfGroup = Group / (4 * Codes::kParts);
  static constexpr bool kExpandsInTiles = false;
  static constexpr int kTallRows = 10;
  static constexpr size_t kScaleSize = kPanelWidth, kFirstLine = 2 * kGroups * kScaleSize;
  static F32x16 group_scales(const std::byte* bytes) { return floats_of_codes(bytes); }
};

// The result of decode_block for formats with several groups: scales are floats.
template <typename Codes>
struct DecodedGroups : PlainCodes {
  static constexpr int kGroups = Codes::kGroups;
  static constexpr int kLinesOfGroup = Codes::kLinesOfGroup * Codes::kParts;
  static constexpr size_t kScaleSize = kScaleBytes, kFirstLine = kGroups * kScaleSize;
  static F32x16 group_scales(const std::byte* floats) {
    return load(reinterpret_cast<const float*>(floats));
  }
};

// Expands a whole block to memory, for several tiles to read. lines: number of lines of codes.
template <typename Codes>
inline void decode_block(const std::byte* block, int lines, std::byte* out) {
  if constexpr (Codes::kGroups > 1) {
    for (size_t i = 0; i < Codes::kGroups; ++i) {
      store(reinterpret_cast<float*>(out), Codes::group_scales(block + i * Codes::kScaleSize));
      out += kScaleBytes;
    }
  }
  const std::byte* line = block + Codes::kFirstLine;
  for (int i = 0; i < lines; ++i) {
    Line parts[Codes::kParts];
    Codes::expand(load_line(line), parts);
    for (const Line& part : parts) {
      store_line(out, part);
      out += sizeof(Line);
    }
    line += sizeof(Line);
  }
}

// The most values of k in a block of codes.
inline constexpr int kMaxBlockK = 256;
// Bytes of operands per panel that tiles share: those of two panels, a tile's rows and all sums fit
// a 32 KiB first-level cache.
inline constexpr size_t kOperandBytes = 4096;

// The lines of operands of a panel's blocks: the packed matrix itself, or a decoded copy.
template <typename Step, typename Codes, bool ReadsCodesDirectly = Codes::kParts == 1>
class OperandsOf {
 public:
  const std::byte* get(const Cut& cut, const std::byte* blocks, int num_blocks) {
    for (int i = 0; i < num_blocks; ++i) {
      decode_block<Codes>(blocks + cut.block_at(i), cut.block_k / (Step::kStep * Codes::kParts),
                          lines_ + static_cast<size_t>(i) * bytes_of_block(cut));
    }
    return lines_;
  }
  static size_t bytes_of_block(const Cut& cut) {
    return static_cast<size_t>(kScaleLines + cut.block_k / Step::kStep) * sizeof(Line);
  }

 private:
  static constexpr int kScaleLines = Codes::kGroups > 1 ? Codes::kGroups : 0;
  alignas(64) std::byte lines_[(kScaleLines + kMaxBlockK / Step::kStep) * sizeof(Line)];
};
template <typename Step, typename Codes>
class OperandsOf<Step, Codes, true> {
 public:
  static const std::byte* get(const Cut&, const std::byte* blocks, int) { return blocks; }
  static size_t bytes_of_block(const Cut& cut) { return cut.block_bytes; }
};
