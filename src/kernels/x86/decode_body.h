// SPDX-License-Identifier: Apache-2.0
//
// How each format's blocks become operands of steps (bf16 pairs, bytes or float32, in the order of
// packed bf16, int8 and float32 panels): line by line of codes, each of which makes kParts lines of
// operands.
//
//   Codes codes(block);
//   const auto group = codes.group(0);
//   codes.expand(load_line(block + Codes::kFirstLine), group, operands);
//
// Included by matmul_body.h.
#pragma once

// Formats without groups of scales within a block.
struct NoScales {
  static constexpr bool kExpandsInTiles = false;
  struct Group {};
  explicit NoScales(const std::byte*) {}
  static Group group(int) { return {}; }
};

// kStrip: how many panels few rows read together (one_tile_body.h). A line of codes makes kParts
// steps of each panel's chain, of four (int8) to six cycles each, and memory gives a line in about
// six to ten: where a line is one step, one panel will do; others need more to keep the processor
// busy. Up to kNarrowRows rows, which wait for memory more than for the chain, take one.
//
// kTallRows: the most rows of one tile, where that is more than kFewRows; 0: no more.
// kExpandsInTiles: where tiles are high, each of several expands codes for itself. kUnhintedRows:
// for Zen 4, see ForZen5 (one_tile_body.h).

// f32, bf16 and int8: the operands as they lie.
struct PlainCodes : NoScales {
  static constexpr int kParts = 1, kGroups = 1, kStrip = 1;
  static constexpr int kNarrowRows = 0, kTallRows = 14, kUnhintedRows = 4;
  static constexpr size_t kFirstLine = 0;
  using NoScales::NoScales;
  static void expand(Line codes, Group, Line (&out)[1]) { out[0] = codes; }
};

struct Int4Codes : NoScales {
  static constexpr int kParts = 2, kGroups = 1, kStrip = 4;
  static constexpr bool kExpandsInTiles = true;
  static constexpr int kNarrowRows = 2, kTallRows = 12, kUnhintedRows = 2;
  static constexpr size_t kFirstLine = 0;
  using NoScales::NoScales;
  static void expand(Line codes, Group, Line (&out)[2]) { expand_int4(codes, out); }
};

struct Fp8Codes : NoScales {
  static constexpr int kParts = 2, kGroups = 1, kStrip = 4;
  static constexpr int kNarrowRows = 0, kTallRows = 10, kUnhintedRows = 0;
  static constexpr size_t kFirstLine = 0;
  using NoScales::NoScales;
  static void expand(Line codes, Group, Line (&out)[2]) { expand_e4m3(codes, out); }
};

// Four groups' scales stand before the codes.
struct Mxfp4Codes : PowerScales {
  static constexpr bool kExpandsInTiles = false;
  static constexpr int kParts = 4, kGroups = 4, kStrip = 4;
  static constexpr int kNarrowRows = 0, kTallRows = 0, kUnhintedRows = 0;
  static constexpr size_t kFirstLine = 4 * kPanelWidth;
  using PowerScales::PowerScales;
};

struct Nvfp4Codes : E5m3Scales {
  static constexpr bool kExpandsInTiles = false;
  static constexpr int kParts = 4, kGroups = 4, kStrip = 4;
  static constexpr int kNarrowRows = 0, kTallRows = 0, kUnhintedRows = 0;
  static constexpr size_t kFirstLine = 4 * kPanelWidth;
  using E5m3Scales::E5m3Scales;
};

// A whole block, for tiles of which several read it. lines: of codes.
template <typename Codes>
inline void decode_block(const std::byte* block, int lines, std::byte* out) {
  const Codes codes(block);
  const std::byte* line = block + Codes::kFirstLine;
  for (int group = 0; group < Codes::kGroups; ++group) {
    const auto scales = codes.group(group);
    for (int i = 0; i < lines / Codes::kGroups; ++i) {
      Line parts[Codes::kParts];
      codes.expand(load_line(line), scales, parts);
      for (const Line& part : parts) {
        store_line(out, part);
        out += sizeof(Line);
      }
      line += sizeof(Line);
    }
  }
}

// The most k of a block of codes.
inline constexpr int kMaxBlockK = 256;
// Of operands of a panel that tiles share: those of two panels, beside a tile's rows and all sums,
// fit a 32 KiB first-level cache.
inline constexpr size_t kOperandBytes = 4096;

// The lines of operands of a panel's blocks: those in memory, or a decoded copy.
template <typename Step, typename Codes, bool AsTheyLie = Codes::kParts == 1>
class OperandsOf {
 public:
  const std::byte* get(const Cut& cut, const std::byte* blocks, int num_blocks) {
    const int lines = cut.block_k / Step::kStep;
    for (int i = 0; i < num_blocks; ++i) {
      decode_block<Codes>(blocks + cut.block_at(i), lines / Codes::kParts,
                          lines_ + static_cast<size_t>(i * lines) * sizeof(Line));
    }
    return lines_;
  }
  static size_t bytes_of_block(const Cut& cut) {
    return static_cast<size_t>(cut.block_k / Step::kStep) * sizeof(Line);
  }

 private:
  alignas(64) std::byte lines_[kMaxBlockK / Step::kStep * sizeof(Line)];
};
template <typename Step, typename Codes>
class OperandsOf<Step, Codes, true> {
 public:
  static const std::byte* get(const Cut&, const std::byte* blocks, int) { return blocks; }
  static size_t bytes_of_block(const Cut& cut) { return cut.block_bytes; }
};
