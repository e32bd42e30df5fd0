// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/try.h"
#include "formats/shape.h"
#include "kernels/interleave.h"
#include "kernels/pack_matrix.h"
#include "weights/checkpoint.h"
#include "weights/finite.h"

namespace wideep::weights {
namespace {

using formats::TensorEntry;
using kernels::CodedMatrix;
using kernels::PackedShape;
using kernels::WeightFormat;

constexpr std::array kFloats = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
constexpr std::array kE4m3 = {Dtype::kF8E4M3};
constexpr std::array kBytes = {Dtype::kU8};
constexpr std::array kWords = {Dtype::kI32};
constexpr std::array kIntegers = {Dtype::kI64, Dtype::kI32};

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

const uint8_t* bytes_of(const TensorEntry& entry) {
  return reinterpret_cast<const uint8_t*>(entry.bytes.data());
}

bool is_stored_as(const TensorEntry& entry, WeightFormat format) {
  return (format == WeightFormat::kF32 && entry.dtype == Dtype::kF32) ||
         (format == WeightFormat::kBf16 && entry.dtype == Dtype::kBf16);
}

// Checks that e4m3 scales are finite and not negative.
Status check_e4m3(const std::string& where, const TensorEntry& scales) {
  const uint8_t* codes = bytes_of(scales);
  const uint8_t* bad =
      std::find_if(codes, codes + scales.bytes.size(), [](uint8_t code) { return code >= 0x7f; });
  if (bad == codes + scales.bytes.size()) return {};
  return invalid_input(fmt::format(
      "{}: expected scales from 0 to 448, found the code {:#04x} at {}", where, *bad, bad - codes));
}

// Checks that e8m0 scales times the largest element (6) are finite bf16 numbers.
Status check_e8m0(const std::string& where, const TensorEntry& scales) {
  constexpr uint8_t kLargest = 252;
  const uint8_t* codes = bytes_of(scales);
  const uint8_t* bad = std::find_if(codes, codes + scales.bytes.size(),
                                    [](uint8_t code) { return code > kLargest; });
  if (bad == codes + scales.bytes.size()) return {};
  return invalid_input(fmt::format("{}: expected scales up to 2^{}, found the code {} at {}", where,
                                   kLargest - 127, *bad, bad - codes));
}

// Checks compressed-tensors' "weight_shape", which repeats the shape: with packed codes the
// tensor's own shape does not determine the number of columns.
Status check_shape_tensor(const TensorSource& tensors, const std::string& name, int n, int k) {
  if (!tensors.has(name)) return {};
  WIDEEP_TRY_ASSIGN(const TensorEntry* entry, tensors.tensor(name, {2}, kIntegers));
  std::vector<int64_t> shape;
  for (size_t i = 0; i < 2; ++i) {
    int64_t value = 0;  // little endian: an int32 fills the lower half
    std::memcpy(&value, entry->bytes.data() + i * dtype_bytes(entry->dtype),
                dtype_bytes(entry->dtype));
    shape.push_back(value);
  }
  if (shape == std::vector<int64_t>{n, k}) return {};
  return invalid_input(fmt::format("{}: expected {}, found {}", tensors.where(name),
                                   formats::describe({n, k}), formats::describe(shape)));
}

// The number of columns that share a scale, from the number of groups in a row.
Result<int> group_of(const std::string& where, int k, int64_t num_groups) {
  const int64_t group =
      num_groups == 1 ? divided_up(k, 8) * 8 : k / std::max<int64_t>(num_groups, 1);
  const bool whole = num_groups == 1 || group * num_groups == k;
  const bool packs = group % 8 == 0 && (group <= 128 || group % 128 == 0 || num_groups == 1);
  if (num_groups > 0 && whole && packs) return static_cast<int>(group);
  return invalid_input(fmt::format(
      "{}: expected groups of 8, 16, … 128 or a multiple of 128 columns, or one, found {} for {} "
      "columns",
      where, num_groups, k));
}

// The form of compressed-tensors' packed integers: the shape of the codes determines the bits (8 or
// 4).
MatrixForm packed_integers_form(const TensorEntry& codes, const TensorEntry* scales, int k) {
  const bool is_matrix = codes.shape.size() == 2 && scales != nullptr && scales->shape.size() == 2;
  const int64_t groups = is_matrix ? std::max<int64_t>(scales->shape[1], 1) : 1;
  const bool is_int8 = is_matrix && codes.shape[1] == divided_up(k, 4);
  const int64_t group = groups == 1 ? 128 : std::min<int64_t>(k / groups, 128);
  return {is_int8 ? WeightFormat::kInt8 : WeightFormat::kInt4,
          group > 0 && group % 8 == 0 ? static_cast<int>(group) : 128};
}

}  // namespace

std::string module_of(const std::string& name) { return name.substr(0, name.rfind(".weight")); }

std::vector<std::string> stored_names(const TensorSource& tensors, const std::string& name) {
  const std::string module = module_of(name);
  std::vector<std::string> names = {name};
  if (tensors.has(module + ".weight_packed")) {
    names = {module + ".weight_packed", module + ".weight_scale", module + ".weight_shape"};
  } else if (const TensorEntry* weight = tensors.find(name); weight == nullptr) {
    return {};
  } else if (weight->dtype == Dtype::kF8E4M3) {
    names.push_back(module + ".weight_scale_inv");
  } else if (weight->dtype == Dtype::kU8) {
    names.insert(names.end(), {module + ".weight_scale", module + ".weight_scale_2"});
  }
  std::erase_if(names, [&](const std::string& each) { return !tensors.has(each); });
  return names;
}

MatrixForm stored_form(const TensorSource& tensors, const std::string& name, int k) {
  const std::string module = module_of(name);
  if (const TensorEntry* codes = tensors.find(module + ".weight_packed")) {
    if (codes->dtype == Dtype::kU8) return default_form(WeightFormat::kMxfp4);
    return packed_integers_form(*codes, tensors.find(module + ".weight_scale"), k);
  }
  const TensorEntry* weight = tensors.find(name);
  if (weight == nullptr) return default_form(WeightFormat::kBf16);
  if (weight->dtype == Dtype::kF8E4M3) return default_form(WeightFormat::kFp8);
  return default_form(weight->dtype == Dtype::kU8 ? WeightFormat::kNvfp4 : WeightFormat::kBf16);
}

Result<StoredMatrix> StoredMatrix::open(const TensorSource& tensors, const std::string& name, int n,
                                        int k) {
  const std::string module = module_of(name);
  StoredMatrix matrix(n, k);
  const TensorEntry* weight = tensors.find(name);
  if (tensors.has(module + ".weight_packed")) {
    WIDEEP_TRY(matrix.open_packed(tensors, module));
  } else if (weight != nullptr && weight->dtype == Dtype::kF8E4M3) {
    WIDEEP_TRY(matrix.open_fp8(tensors, module));
  } else if (weight != nullptr && weight->dtype == Dtype::kU8) {
    WIDEEP_TRY(matrix.open_nvfp4(tensors, module));
  } else {
    WIDEEP_TRY_ASSIGN(matrix.plain_, tensors.tensor(name, {n, k}));
    matrix.sources_ = {matrix.plain_->bytes};
  }
  matrix.where_ = tensors.where(tensors.has(name) ? name : module + ".weight_packed");
  return matrix;
}

void StoredMatrix::set_codes(WeightFormat format, int group, const TensorEntry& codes) {
  coded_ = {.format = format, .n = n_, .k = k_, .group = group, .codes = codes.bytes.data()};
  sources_.push_back(codes.bytes);
}

Result<const float*> StoredMatrix::read_scales(const TensorSource& tensors, const std::string& name,
                                               const std::vector<int64_t>& shape) {
  WIDEEP_TRY_ASSIGN(const TensorEntry* entry, tensors.tensor(name, shape, kFloats));
  scales_ = std::make_shared<std::vector<float>>(entry->num_elements());
  weights::to_float32(*entry, scales_->data());
  sources_.push_back(entry->bytes);
  const auto bad = std::find_if_not(scales_->begin(), scales_->end(),
                                    [](float scale) { return std::isfinite(scale); });
  if (bad == scales_->end()) return scales_->data();
  return invalid_input(fmt::format("{}: expected finite scales, found {} at {}",
                                   tensors.where(name), *bad, bad - scales_->begin()));
}

Status StoredMatrix::open_fp8(const TensorSource& tensors, const std::string& module) {
  WIDEEP_TRY_ASSIGN(const TensorEntry* codes, tensors.tensor(module + ".weight", {n_, k_}, kE4m3));
  if (!tensors.has(module + ".weight_scale_inv")) {
    return invalid_input(fmt::format(
        "{}: expected weight_scale_inv beside F8_E4M3, a scale for each block of 128 × 128, found "
        "none",
        tensors.where(module + ".weight")));
  }
  set_codes(WeightFormat::kFp8, 128, *codes);
  codes_ = codes;
  WIDEEP_TRY_ASSIGN(coded_->scales, read_scales(tensors, module + ".weight_scale_inv",
                                                {divided_up(n_, 128), divided_up(k_, 128)}));
  coded_->scale_rows = 128;
  return {};
}

Status StoredMatrix::open_nvfp4(const TensorSource& tensors, const std::string& module) {
  WIDEEP_TRY_ASSIGN(const TensorEntry* codes,
                    tensors.tensor(module + ".weight", {n_, divided_up(k_, 2)}, kBytes));
  const std::string name = module + ".weight_scale";
  WIDEEP_TRY_ASSIGN(const TensorEntry* scales,
                    tensors.tensor(name, {n_, divided_up(k_, 16)}, kE4m3));
  WIDEEP_TRY(check_e4m3(tensors.where(name), *scales));
  set_codes(WeightFormat::kNvfp4, 16, *codes);
  coded_->scales = scales->bytes.data();
  sources_.push_back(scales->bytes);
  const std::string second = module + ".weight_scale_2";
  const TensorEntry* entry = tensors.find(second);
  // The scale of the matrix may be a scalar or a list of one number.
  const bool is_list = entry != nullptr && !entry->shape.empty();
  WIDEEP_TRY_ASSIGN(
      const float* scale,
      read_scales(tensors, second, is_list ? std::vector<int64_t>{1} : std::vector<int64_t>{}));
  coded_->scale = *scale;
  return {};
}

Status StoredMatrix::open_packed(const TensorSource& tensors, const std::string& module) {
  const std::string name = module + ".weight_packed";
  const TensorEntry* codes = tensors.find(name);
  for (const char* unsupported : {".weight_zero_point", ".weight_g_idx", ".weight_global_scale"}) {
    if (tensors.has(module + unsupported)) {
      return invalid_input(fmt::format(
          "{}: not supported; expected symmetric quantisation with groups of consecutive columns",
          tensors.where(module + unsupported)));
    }
  }
  WIDEEP_TRY(check_shape_tensor(tensors, module + ".weight_shape", n_, k_));
  if (codes->dtype == Dtype::kU8) return open_packed_mxfp4(tensors, module);
  const bool is_int8 = codes->shape == std::vector<int64_t>{n_, divided_up(k_, 4)};
  return open_packed_integers(tensors, module, is_int8 ? 8 : 4);
}

Status StoredMatrix::open_packed_integers(const TensorSource& tensors, const std::string& module,
                                          int bits) {
  WIDEEP_TRY_ASSIGN(
      const TensorEntry* codes,
      tensors.tensor(module + ".weight_packed", {n_, divided_up(k_, 32 / bits)}, kWords));
  const std::string name = module + ".weight_scale";
  const TensorEntry* scales = tensors.find(name);
  const int64_t num_groups = scales == nullptr || scales->shape.size() != 2 ? 1 : scales->shape[1];
  WIDEEP_TRY_ASSIGN(const int group,
                    group_of(tensors.has(name) ? tensors.where(name) : module, k_, num_groups));
  set_codes(bits == 8 ? WeightFormat::kInt8 : WeightFormat::kInt4, group, *codes);
  WIDEEP_TRY_ASSIGN(coded_->scales, read_scales(tensors, name, {n_, num_groups}));
  // The kernels read rows without padding, so columns must fill the last int32.
  if (codes->bytes.size() == static_cast<size_t>(n_) * coded_->row_bytes()) return {};
  return invalid_input(fmt::format("{}: expected columns that fill whole int32 words, found {}",
                                   tensors.where(module + ".weight_packed"), k_));
}

Status StoredMatrix::open_packed_mxfp4(const TensorSource& tensors, const std::string& module) {
  WIDEEP_TRY_ASSIGN(const TensorEntry* codes,
                    tensors.tensor(module + ".weight_packed", {n_, divided_up(k_, 2)}, kBytes));
  const std::string name = module + ".weight_scale";
  WIDEEP_TRY_ASSIGN(const TensorEntry* scales,
                    tensors.tensor(name, {n_, divided_up(k_, 32)}, kBytes));
  WIDEEP_TRY(check_e8m0(tensors.where(name), *scales));
  set_codes(WeightFormat::kMxfp4, 32, *codes);
  coded_->scales = scales->bytes.data();
  sources_.push_back(scales->bytes);
  return {};
}

Result<StoredMatrix> StoredMatrix::open_blocks(const TensorSource& tensors, const std::string& name,
                                               const ExpertRows& rows, int n, int k) {
  const int64_t groups = divided_up(k, 32);
  WIDEEP_TRY_ASSIGN(
      const TensorEntry* blocks,
      tensors.tensor(name + "_blocks", {rows.num_experts, rows.rows_each, groups, 16}, kBytes));
  WIDEEP_TRY_ASSIGN(
      const TensorEntry* scales,
      tensors.tensor(name + "_scales", {rows.num_experts, rows.rows_each, groups}, kBytes));
  WIDEEP_TRY(check_e8m0(tensors.where(name + "_scales"), *scales));
  StoredMatrix matrix(n, k);
  matrix.where_ = tensors.where(name + "_blocks");
  // The rows of one matrix are not contiguous in the file (gate and up alternate), so they are
  // copied.
  const size_t code_bytes = static_cast<size_t>(groups) * 16, scale_bytes = size_t(groups);
  const size_t all_codes = static_cast<size_t>(n) * code_bytes;
  matrix.gathered_ =
      std::make_shared<std::vector<std::byte>>(all_codes + static_cast<size_t>(n) * scale_bytes);
  std::byte* out = matrix.gathered_->data();
  for (int row = 0; row < n; ++row) {
    const auto from = static_cast<size_t>(rows.expert) * static_cast<size_t>(rows.rows_each) +
                      static_cast<size_t>(rows.first_row + row * rows.row_step);
    const auto to = static_cast<size_t>(row);
    std::memcpy(out + to * code_bytes, blocks->bytes.data() + from * code_bytes, code_bytes);
    std::memcpy(out + all_codes + to * scale_bytes, scales->bytes.data() + from * scale_bytes,
                scale_bytes);
  }
  matrix.coded_ = {.format = WeightFormat::kMxfp4, .n = n, .k = k, .group = 32, .codes = out};
  matrix.coded_->scales = out + all_codes;
  matrix.sources_ = {*matrix.gathered_};
  return matrix;
}

// Whether codes can be copied: the groups of `shape` are equal to the stored ones or parts of them,
// since all parts of a group have its scale.
bool StoredMatrix::is_stored_in(const PackedShape& shape) const {
  if (!coded_ || coded_->format != shape.format) return false;
  return coded_->group % shape.group == 0 || coded_->group >= k_;
}

float StoredMatrix::matrix_scale(const PackedShape& shape) const {
  if (shape.format != WeightFormat::kNvfp4) return 1.0f;
  if (is_stored_in(shape)) return coded_->scale;
  float largest = 0.0f;
  std::vector<float> row(static_cast<size_t>(k_));
  for (int i = 0; i < n_; ++i) {
    to_float32(i, i + 1, row.data());
    for (const float value : row) largest = std::max(largest, std::abs(value));
  }
  return kernels::nvfp4_matrix_scale(largest);
}

void StoredMatrix::to_float32(int begin, int end, float* out) const {
  if (coded_) return kernels::dequantize_rows(*coded_, begin, end, out);
  weights::to_float32(*plain_, int64_t{begin} * k_, int64_t{end - begin} * k_, out);
}

Status StoredMatrix::to_finite(int begin, int end, float* out) const {
  to_float32(begin, end, out);
  const int64_t count = int64_t{end - begin} * k_;
  // Tests all values without an early exit, so that the compiler vectorises the loop.
  bool all_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    constexpr uint32_t kExponent = 0x7f800000;
    all_finite &= (std::bit_cast<uint32_t>(out[i]) & kExponent) != kExponent;
  }
  if (all_finite) return {};
  const int64_t at =
      std::find_if_not(out, out + count, [](float x) { return std::isfinite(x); }) - out;
  return not_finite(where_, out[at], int64_t{begin} * k_ + at, k_);
}

int StoredMatrix::panels_together(const PackedShape& shape) const {
  // A scale of fp8 is shared by 128 rows, both when codes are copied and when they are made.
  const bool blocks =
      shape.format == WeightFormat::kFp8 || (coded_ && coded_->format == WeightFormat::kFp8);
  return blocks ? 128 / kernels::kPanelWidth : 1;
}

Status StoredMatrix::pack(const PackedShape& shape, float scale, int first, int last,
                          std::byte* panels) const {
  const int begin = first * kernels::kPanelWidth;
  PackedShape part = shape;
  part.n = std::min(n_, last * kernels::kPanelWidth) - begin;
  if (is_stored_in(shape)) {
    if (codes_ != nullptr) {
      WIDEEP_TRY(check_finite(*codes_, int64_t{begin} * k_, int64_t{part.n} * k_, where_));
    }
    kernels::begin_pack(part, 0, part.num_panels(), panels);
    kernels::pack_codes(part, coded_->slice(begin, begin + part.n), 0, panels);
    return {};
  }
  // A few panels at a time, so that the rows stay in the cache.
  const int step = panels_together(shape) * kernels::kPanelWidth;
  for (int row = 0; row < part.n; row += step) {
    PackedShape piece = part;
    piece.n = std::min(step, part.n - row);
    WIDEEP_TRY(pack_floats(piece, scale, begin + row, panels));
    panels += piece.bytes();
  }
  return {};
}

// From the cheaper way to the more expensive: interleaves floats of the wanted dtype, or converts
// to float32 and quantises.
Status StoredMatrix::pack_floats(const PackedShape& part, float scale, int begin,
                                 std::byte* out) const {
  if (plain_ != nullptr && is_stored_as(*plain_, part.format)) {
    WIDEEP_TRY(check_finite(*plain_, int64_t{begin} * k_, int64_t{part.n} * k_, where_));
    const size_t row_bytes = static_cast<size_t>(k_) * dtype_bytes(plain_->dtype);
    kernels::interleave(part, plain_->bytes.data() + static_cast<size_t>(begin) * row_bytes, out);
    return {};
  }
  std::vector<float> rows(static_cast<size_t>(part.n) * static_cast<size_t>(k_));
  WIDEEP_TRY(to_finite(begin, begin + part.n, rows.data()));
  if (!kernels::is_coded(part.format)) {
    kernels::pack_matrix(part, rows.data(), out);
    return {};
  }
  const auto quantized =
      kernels::quantize_matrix(part.format, part.group, rows.data(), part.n, k_, scale);
  kernels::begin_pack(part, 0, part.num_panels(), out);
  kernels::pack_codes(part, quantized.view, 0, out);
  return {};
}

}  // namespace wideep::weights
