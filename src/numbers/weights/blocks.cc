// SPDX-License-Identifier: Apache-2.0
//
// Types are put together from a few loops over 32 or 256 codes: nibbles, two bits, one bit, signed
// bytes. Each loop reads bytes that do not alias the codes it writes, with no branch inside, so
// that compilers make vectors of it. The comment above a type is the order of its fields in a
// block.
//
// For forms of two levels, types with signed scales become d · scale · code − dmin · minimum with
// scales that are not negative:
//   s · (c − offset) = |s| · c − |s| · offset                  if s ≥ 0
//                    = |s| · (2 · offset − c) − |s| · offset   if s < 0
// All factors are whole numbers, so nothing is lost.
#include "weights/blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "base/microscaling.h"

namespace wideep::weights {
namespace {

using tensor_files::BlockType;

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

float half_at(const std::byte* from) { return float_from_f16(read<uint16_t>(from)); }
unsigned byte_at(const std::byte* from, int index) {
  return std::to_integer<unsigned>(from[index]);
}

// The values of IQ4's codes, plus 128: a table of ggml's (kvalues_iq4nl).
constexpr int kTableOffset = 128;
constexpr uint8_t kIq4Table[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                   129, 141, 153, 166, 181, 197, 217, 241};

// Below, no codes are among the bytes they come from (__restrict), so that loops become vectors.
using Bytes = const std::byte* __restrict;
using Codes = uint8_t* __restrict;

// int8, as codes with an offset of 128.
void signed_bytes_of_32(Bytes from, Codes codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(byte_at(from, i) ^ 0x80u);
}

// 16 bytes with codes i in the low and i + 16 in the high nibbles.
void nibbles_of_32(Bytes from, Codes codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<uint8_t>(byte_at(from, i) & 15u);
    codes[i + 16] = static_cast<uint8_t>(byte_at(from, i) >> 4);
  }
}

void add_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (bits >> i & 1u) << 4);
}

// The scale and minimum of group j of Q4_K and Q5_K: 6 bits each. The first four of both have bytes
// of their own, whose upper two bits belong to the last four.
struct ScaleAndMinimum {
  unsigned scale, minimum;
};
ScaleAndMinimum six_bits(const std::byte* packed, int j) {
  if (j < 4) return {byte_at(packed, j) & 63u, byte_at(packed, j + 4) & 63u};
  const unsigned low = byte_at(packed, j + 4);
  return {(low & 15u) | byte_at(packed, j - 4) >> 6 << 4, low >> 4 | byte_at(packed, j) >> 6 << 4};
}

// d, dmin, 12 bytes of scales.
void scales_of_k(const std::byte* block, UnpackedBlocks out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = six_bits(block + 4, j);
    out.scales[j] = d * static_cast<float>(scale);
    out.minimums[j] = -(dmin * static_cast<float>(minimum));
  }
}

// Codes of 4 bits: 64 codes are 32 bytes, the first 32 in the low nibbles.
void nibbles_of_256(Bytes from, Codes codes) {
  for (int part = 0; part < 4; ++part, from += 32, codes += 64) {
    for (int i = 0; i < 32; ++i) {
      codes[i] = static_cast<uint8_t>(byte_at(from, i) & 15u);
      codes[i + 32] = static_cast<uint8_t>(byte_at(from, i) >> 4);
    }
  }
}

// The same for 64 codes, but two consecutive ones in each byte: first those of low nibbles.
void pairs_of_nibbles(Bytes from, std::byte* __restrict pairs) {
  for (int i = 0; i < 16; ++i) {
    const unsigned two = read<uint16_t>(from + 2 * i);
    pairs[i] = static_cast<std::byte>((two & 0x0fu) | (two >> 4 & 0xf0u));
    pairs[i + 16] = static_cast<std::byte>((two >> 4 & 0x0fu) | (two >> 8 & 0xf0u));
  }
}

// Codes of 2 bits: 128 codes are 32 bytes, four codes in each that are 32 apart. Adds each, times
// 2^up, to the codes.
void add_two_bits(Bytes from, int up, Codes codes) {
  for (int part = 0; part < 8; ++part) {
    Bytes bytes = from + part / 4 * 32;
    for (int i = 0; i < 32; ++i) {
      const unsigned code = byte_at(bytes, i) >> (part % 4 * 2) & 3u;
      codes[part * 32 + i] = static_cast<uint8_t>(codes[part * 32 + i] | code << up);
    }
  }
}
// Codes' bit number `up`, of 32 codes in each bit of 32 bytes.
void add_bits(Bytes from, int up, Codes codes) {
  for (int part = 0; part < 8; ++part) {
    for (int i = 0; i < 32; ++i) {
      const unsigned bit = byte_at(from, i) >> part & 1u;
      codes[part * 32 + i] = static_cast<uint8_t>(codes[part * 32 + i] | bit << up);
    }
  }
}

void codes_of_q2k(const std::byte* block, uint8_t* codes) {
  std::fill_n(codes, 256, uint8_t{0});
  add_two_bits(block + 16, 0, codes);
}

void unpack_q2k(const std::byte* block, UnpackedBlocks out) {
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int j = 0; j < 16; ++j) {
    const unsigned both = byte_at(block, j);
    out.scales[j] = d * static_cast<float>(both & 15u);
    out.minimums[j] = -(dmin * static_cast<float>(both >> 4));
  }
  codes_of_q2k(block, out.codes);
}

int scale_of_q3k(const std::byte* block, int j) {
  const std::byte* packed = block + 96;
  const unsigned low = j < 8 ? byte_at(packed, j) & 15u : byte_at(packed, j - 8) >> 4;
  const unsigned high = byte_at(packed, 8 + j % 4) >> (j / 4 * 2) & 3u;
  return static_cast<int>(low | high << 4) - 32;
}

// hmask[32], qs[64], scales[12], d
void unpack_q3k(const std::byte* block, UnpackedBlocks out) {
  const float d = half_at(block + 108);
  for (int j = 0; j < 16; ++j) out.scales[j] = d * static_cast<float>(scale_of_q3k(block, j));
  std::fill_n(out.codes, 256, uint8_t{0});
  add_two_bits(block + 32, 0, out.codes);
  add_bits(block, 2, out.codes);
}

// d, dmin, scales[12], qh[32], qs[128]
void codes_of_q5k(const std::byte* block, uint8_t* codes) {
  nibbles_of_256(block + 48, codes);
  add_bits(block + 16, 4, codes);
}

// ql[128], qh[64], scales[16], d
void unpack_q6k(const std::byte* block, UnpackedBlocks out) {
  const float d = half_at(block + 208);
  for (int j = 0; j < 16; ++j) {
    out.scales[j] = d * static_cast<float>(read<int8_t>(block + 192 + j));
  }
  for (int part = 0; part < 2; ++part) {
    const std::byte* bytes = block + part * 64;
    uint8_t* codes = out.codes + part * 128;
    for (int i = 0; i < 64; ++i) {
      codes[i] = static_cast<uint8_t>(byte_at(bytes, i) & 15u);
      codes[i + 64] = static_cast<uint8_t>(byte_at(bytes, i) >> 4);
    }
  }
  add_two_bits(block + 128, 4, out.codes);
}

int scale_of_iq4xs(const std::byte* block, int j) {
  const unsigned low = byte_at(block + 4, j / 2) >> (j % 2 * 4) & 15u;
  const unsigned high = static_cast<unsigned>(read<uint16_t>(block + 2)) >> (2 * j) & 3u;
  return static_cast<int>(low | high << 4) - 32;
}

// d, scales_h u16, scales_l[4], qs[128]
void unpack_iq4xs(const std::byte* block, UnpackedBlocks out) {
  const float d = half_at(block);
  for (int j = 0; j < 8; ++j) {
    out.scales[j] = d * static_cast<float>(scale_of_iq4xs(block, j));
    nibbles_of_32(block + 8 + 16 * j, out.codes + 32 * j);
  }
}

void look_up_iq4(int count, uint8_t* codes) {
  for (int i = 0; i < count; ++i) codes[i] = kIq4Table[codes[i]];
}

// Half of 2^(e − 127), as ggml has it: for e = 255 a number, too.
float half_of_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (uint32_t{e} - 1) << 23);
}

// minimum: null if the type has none, for −0 + 0 would be 0.
void dequantize_group(const uint8_t* codes, int group, int offset, float scale,
                      const float* minimum, float* __restrict out) {
  for (int i = 0; i < group; ++i) out[i] = scale * static_cast<float>(codes[i] - offset);
  if (minimum == nullptr) return;
  for (int i = 0; i < group; ++i) out[i] += *minimum;
}

template <typename Stored, typename Convert>
void convert(const std::byte* from, int64_t count, float* out, Convert to_float) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = to_float(read<Stored>(from + i * static_cast<int64_t>(sizeof(Stored))));
  }
}

}  // namespace

int group_of(BlockType type) {
  switch (type) {
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBf16:
    case BlockType::kI32:
      return 0;
    case BlockType::kQ2K:
    case BlockType::kQ3K:
    case BlockType::kQ6K:
      return 16;
    case BlockType::kQ8_0:
    case BlockType::kQ4_0:
    case BlockType::kQ4_1:
    case BlockType::kQ5_0:
    case BlockType::kQ5_1:
    case BlockType::kQ4K:
    case BlockType::kQ5K:
    case BlockType::kIq4Nl:
    case BlockType::kIq4Xs:
    case BlockType::kMxfp4:
      break;
  }
  return 32;
}

int offset_of(BlockType type) {
  switch (type) {
    case BlockType::kQ8_0:
    case BlockType::kIq4Nl:
    case BlockType::kIq4Xs:
      return kTableOffset;
    case BlockType::kQ4_0:
      return 8;
    case BlockType::kQ5_0:
      return 16;
    case BlockType::kQ3K:
      return 4;
    case BlockType::kQ6K:
      return 32;
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBf16:
    case BlockType::kI32:
    case BlockType::kQ4_1:
    case BlockType::kQ5_1:
    case BlockType::kQ2K:
    case BlockType::kQ4K:
    case BlockType::kQ5K:
    case BlockType::kMxfp4:
      break;
  }
  return 0;
}

bool has_minimums(BlockType type) {
  return type == BlockType::kQ4_1 || type == BlockType::kQ5_1 || type == BlockType::kQ2K ||
         type == BlockType::kQ4K || type == BlockType::kQ5K;
}

namespace {

// Calls unpack(block, place of its codes and scales) for each block of the type.
template <typename Unpack>
void for_each_block(BlockType type, const std::byte* blocks, int64_t count, UnpackedBlocks out,
                    Unpack unpack) {
  const tensor_files::BlockTypeInfo& info = tensor_files::block_type_info(type);
  const int groups = info.elements / group_of(type);
  for (int64_t i = 0; i < count; i += info.elements, blocks += info.bytes) {
    unpack(blocks, out);
    out.codes += info.elements;
    out.scales += groups;
    if (out.minimums) out.minimums += groups;
  }
}

}  // namespace

void unpack_blocks(BlockType type, const std::byte* blocks, int64_t count,
                   const UnpackedBlocks& out) {
  using Block = const std::byte*;
  using Out = UnpackedBlocks;  // a copy: stores of bytes cannot change it
  const auto each = [&](auto unpack) { for_each_block(type, blocks, count, out, unpack); };
  switch (type) {
    case BlockType::kQ8_0:
      return each([](Block block, Out to) {
        to.scales[0] = half_at(block);
        signed_bytes_of_32(block + 2, to.codes);
      });
    case BlockType::kQ4_0:
      return each([](Block block, Out to) {
        to.scales[0] = half_at(block);
        nibbles_of_32(block + 2, to.codes);
      });
    case BlockType::kQ4_1:
      return each([](Block block, Out to) {
        to.scales[0] = half_at(block);
        to.minimums[0] = half_at(block + 2);
        nibbles_of_32(block + 4, to.codes);
      });
    case BlockType::kQ5_0:
      return each([](Block block, Out to) {
        to.scales[0] = half_at(block);
        nibbles_of_32(block + 6, to.codes);
        add_fifth_bits(read<uint32_t>(block + 2), to.codes);
      });
    case BlockType::kQ5_1:
      return each([](Block block, Out to) {
        to.scales[0] = half_at(block);
        to.minimums[0] = half_at(block + 2);
        nibbles_of_32(block + 8, to.codes);
        add_fifth_bits(read<uint32_t>(block + 4), to.codes);
      });
    case BlockType::kQ2K:
      return each(unpack_q2k);
    case BlockType::kQ3K:
      return each(unpack_q3k);
    case BlockType::kQ4K:
      return each([](Block block, Out to) {
        scales_of_k(block, to);
        nibbles_of_256(block + 16, to.codes);
      });
    case BlockType::kQ5K:
      return each([](Block block, Out to) {
        scales_of_k(block, to);
        codes_of_q5k(block, to.codes);
      });
    case BlockType::kQ6K:
      return each(unpack_q6k);
    case BlockType::kIq4Nl:
      return each([](Block block, Out to) {
        to.scales[0] = half_at(block);
        nibbles_of_32(block + 2, to.codes);
        look_up_iq4(32, to.codes);
      });
    case BlockType::kIq4Xs:
      return each([](Block block, Out to) {
        unpack_iq4xs(block, to);
        look_up_iq4(256, to.codes);
      });
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBf16:
    case BlockType::kI32:
    case BlockType::kMxfp4:
      break;
  }
  WIDEEP_CHECK(group_of(type) > 0 && type != BlockType::kMxfp4);
}

bool has_two_levels(BlockType type) {
  return tensor_files::block_type_info(type).elements == tensor_files::kMaxBlockElements;
}

namespace {

// Where scales have signs and codes an offset: d · scale · (code − offset).
template <typename ScaleOf>
void unpack_signed(BlockType type, const std::byte* block, float d, ScaleOf scale_of, uint8_t* to,
                   TwoLevelScales* out) {
  uint8_t codes[tensor_files::kMaxBlockElements];
  float scales[16];
  unpack_blocks(type, block, tensor_files::kMaxBlockElements, {.codes = codes, .scales = scales});
  const int offset = offset_of(type), group = group_of(type);
  out->d = d;
  out->dmin = d * static_cast<float>(offset);  // exact: the offset is a power of two
  for (int j = 0; j < tensor_files::kMaxBlockElements / group; ++j) {
    const int scale = scale_of(block, j);
    out->scales[j] = out->minimums[j] = static_cast<uint8_t>(scale < 0 ? -scale : scale);
    for (int i = j * group; i < (j + 1) * group; ++i) {
      const int code = codes[i];
      to[i] = static_cast<uint8_t>(scale < 0 ? 2 * offset - code : code);
    }
  }
}

// Of Q4_K and Q5_K.
void unpack_six_bits(const std::byte* block, TwoLevelScales* out) {
  out->d = half_at(block);
  out->dmin = half_at(block + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = six_bits(block + 4, j);
    out->scales[j] = static_cast<uint8_t>(scale);
    out->minimums[j] = static_cast<uint8_t>(minimum);
  }
}

}  // namespace

void unpack_q4k_pairs(const std::byte* block, std::byte* pairs, TwoLevelScales* out) {
  unpack_six_bits(block, out);
  const std::byte* from = block + 16;
  for (int part = 0; part < 4; ++part, from += 32, pairs += 32) {
    pairs_of_nibbles(from, pairs);
  }
}

void unpack_two_levels(BlockType type, const std::byte* block, uint8_t* codes,
                       TwoLevelScales* out) {
  switch (type) {
    case BlockType::kQ2K:
      out->d = half_at(block + 80);
      out->dmin = half_at(block + 82);
      for (int j = 0; j < 16; ++j) {
        out->scales[j] = static_cast<uint8_t>(byte_at(block, j) & 15u);
        out->minimums[j] = static_cast<uint8_t>(byte_at(block, j) >> 4);
      }
      return codes_of_q2k(block, codes);
    case BlockType::kQ4K:
      unpack_six_bits(block, out);
      return nibbles_of_256(block + 16, codes);
    case BlockType::kQ5K:
      unpack_six_bits(block, out);
      return codes_of_q5k(block, codes);
    case BlockType::kQ3K:
      return unpack_signed(type, block, half_at(block + 108), scale_of_q3k, codes, out);
    case BlockType::kQ6K:
      return unpack_signed(
          type, block, half_at(block + 208),
          [](const std::byte* from, int j) -> int { return read<int8_t>(from + 192 + j); }, codes,
          out);
    case BlockType::kIq4Xs:
      return unpack_signed(type, block, half_at(block), scale_of_iq4xs, codes, out);
    default:
      break;
  }
  WIDEEP_CHECK(has_two_levels(type));
}

uint8_t unpack_mxfp4(const std::byte* block, uint8_t* codes) {
  nibbles_of_32(block + 1, codes);
  return static_cast<uint8_t>(byte_at(block, 0));
}

void dequantize_blocks(BlockType type, const std::byte* blocks, int64_t count, float* out) {
  switch (type) {
    case BlockType::kF32:
      return convert<float>(blocks, count, out, [](float value) { return value; });
    case BlockType::kF16:
      return convert<uint16_t>(blocks, count, out, float_from_f16);
    case BlockType::kBf16:
      return convert<Bf16>(blocks, count, out,
                           [](Bf16 value) { return static_cast<float>(value); });
    default:
      break;
  }
  const tensor_files::BlockTypeInfo& info = tensor_files::block_type_info(type);
  WIDEEP_CHECK_EQ(count % info.elements, 0);
  uint8_t codes[tensor_files::kMaxBlockElements];
  float scales[16], minimums[16];
  const int group = group_of(type), offset = offset_of(type);
  const bool adds = has_minimums(type);
  for (int64_t i = 0; i < count; i += info.elements, blocks += info.bytes) {
    if (type == BlockType::kMxfp4) {
      const float scale = half_of_e8m0(unpack_mxfp4(blocks, codes));
      for (int j = 0; j < info.elements; ++j) {
        // ggml's elements are integers, which have no −0.
        const int twice = static_cast<int>(2.0f * float_from_e2m1(codes[j]));
        *out++ = scale * static_cast<float>(twice);
      }
      continue;
    }
    unpack_blocks(type, blocks, info.elements, {codes, scales, minimums});
    for (int g = 0; g < info.elements / group; ++g, out += group) {
      dequantize_group(codes + g * group, group, offset, scales[g], adds ? &minimums[g] : nullptr,
                       out);
    }
  }
}

}  // namespace wideep::weights
