// SPDX-License-Identifier: Apache-2.0
//
// What no layout alone decides comes first: groups of equal size, what quantization_config
// declares, zero points. Then the function of the layout gets each tensor with the shape that n
// and k demand, and checks its scales.
//
// Scales are read when a matrix is opened, all of them: a scale that is not finite, or is 0 for
// codes that are not, would make wrong weights without a sign of it. They are far fewer than the
// codes. With the largest code a scale must give a finite number; then only codes of fp8, which
// can be NaN, need a look when they are packed.
//
// Where a file can be read in two ways (GPTQ's zero points), it is refused with a message that
// says what would decide: a wrong guess would load without an error.
#include "weights/open_coded.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/microscaling.h"
#include "base/try.h"
#include "tensor_files/shape.h"
#include "weights/checkpoint.h"

namespace wideep::weights {
namespace {

using kernels::WeightFormat;
using tensor_files::TensorEntry;
using Kind = StoredLayout::Kind;
using Order = CodedSource::Order;
using Shape = std::vector<int64_t>;

constexpr std::array kFloats = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};
constexpr std::array kFp8Scales = {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E8M0,
                                   Dtype::kU8};
constexpr std::array kE4m3 = {Dtype::kF8E4M3};
constexpr std::array kE8m0 = {Dtype::kU8, Dtype::kF8E8M0};
constexpr std::array kBytes = {Dtype::kU8, Dtype::kI8};
constexpr std::array kSigned = {Dtype::kI8};
constexpr std::array kWords = {Dtype::kI32};
constexpr std::array kIntegers = {Dtype::kI64, Dtype::kI32};

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t integer_at(const TensorEntry& entry, int64_t index) {
  const size_t size = dtype_bytes(entry.dtype);
  const std::byte* from = entry.bytes.data() + static_cast<size_t>(index) * size;
  if (size == 8) {
    int64_t value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  int32_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

class Opener {
 public:
  Opener(const StoredModule& module, const StoredLayout& layout, int n, int k)
      : module_(module), layout_(layout), tensors_(*module.source), n_(n), k_(k) {
    CodedSource& codes = opened_.codes;
    codes.format = layout.format;
    codes.bits = layout.bits;
    codes.k = k;
    codes.group = layout.group;
    codes.num_groups = layout.num_groups;
    codes.first_row = module.first_row(n);
    codes.row_step = module.row_step();
    rows_ = module.all_rows(n);
  }

  Result<OpenedCodes> open() {
    WIDEEP_TRY(check_groups());
    WIDEEP_TRY(check_declared());
    WIDEEP_TRY(check_zero_points());
    WIDEEP_TRY(open_kind());
    return std::move(opened_);
  }

 private:
  // A tensor and where the expert's part of it begins.
  struct Part {
    const TensorEntry* entry = nullptr;
    int64_t first = 0;  // element
    const std::byte* data() const {
      return entry->bytes.data() + static_cast<size_t>(first) * dtype_bytes(entry->dtype);
    }
  };

  Status open_kind() {
    switch (layout_.kind) {
      case Kind::kFp8:
        return open_fp8();
      case Kind::kNvfp4:
      case Kind::kMxfp4:
        return open_microscaling();
      case Kind::kPackedIntegers:
        return open_packed_integers();
      case Kind::kSignedBytes:
        return open_signed_bytes();
      case Kind::kGptq:
        return open_gptq();
      case Kind::kAwq:
        return open_awq();
      case Kind::kMissing:
      case Kind::kFloats:
        break;
    }
    return invalid_input(where(layout_.weight) + ": expected codes, found floats");
  }

  std::string where(const std::string& name) const { return tensors_.where(name); }

  Shape with_experts(Shape shape) const {
    if (module_.num_experts > 0) shape.insert(shape.begin(), module_.num_experts);
    return shape;
  }

  // A tensor with this shape for each expert. suffix: the name that is missed if `name` is empty.
  Result<Part> part(const std::string& name, const char* suffix, const Shape& shape,
                    std::span<const Dtype> dtypes) {
    WIDEEP_TRY_ASSIGN(const TensorEntry* entry,
                      tensors_.tensor(name.empty() ? module_.name + "." + suffix : name,
                                      with_experts(shape), dtypes));
    add_source(*entry);
    const int64_t each = entry->num_elements() / std::max(module_.num_experts, 1);
    return Part{entry, each * module_.expert};
  }

  // The tensor's bytes of this expert and part. Alternating parts get equal shares, so that the
  // bytes of all parts add up to those of the tensor.
  void add_source(const TensorEntry& entry) {
    const auto experts = static_cast<size_t>(std::max(module_.num_experts, 1));
    const auto parts = static_cast<size_t>(module_.parts);
    const size_t bytes = entry.bytes.size() / experts / parts;
    const size_t at = static_cast<size_t>(module_.expert) * parts + size_t(module_.part);
    opened_.sources.push_back(entry.bytes.subspan(at * bytes, bytes));
  }

  Status check_groups() const {
    if (layout_.group > 0) return {};
    return invalid_input(
        fmt::format("{}: expected scales for groups of equal size, found {} for "
                    "{} columns",
                    where(layout_.scales), layout_.num_groups, k_));
  }

  bool has_integers() const {
    return layout_.kind == Kind::kPackedIntegers || layout_.kind == Kind::kSignedBytes ||
           layout_.kind == Kind::kGptq || layout_.kind == Kind::kAwq;
  }

  // What the file's quantization_config says of all matrices must be so in this one.
  Status check_declared() const {
    if (module_.declared == nullptr || !has_integers()) return {};
    const DeclaredLayout& declared = *module_.declared;
    if (declared.bits != 0 && declared.bits != layout_.bits) {
      return invalid_input(fmt::format(
          "{}: expected codes of {} bits, as quantization_config says, found a shape of {} bits",
          where(layout_.weight), declared.bits, layout_.bits));
    }
    if (!declared.group) return {};
    const int64_t group = *declared.group <= 0 ? k_ : std::min<int64_t>(*declared.group, k_);
    if (divided_up(k_, group) == layout_.num_groups && (layout_.group == group || group >= k_)) {
      return {};
    }
    return invalid_input(fmt::format(
        "{}: expected scales for {} groups of {} columns, as quantization_config.{} says, found {}",
        where(layout_.scales), divided_up(k_, group), group, declared.group_key,
        layout_.num_groups));
  }

  // Of a symmetric file all zero points are the middle. GPTQ's of a file that does not say whether
  // it is one may be stored in two ways, between which nothing decides if they all look like it.
  Status check_zero_points() const {
    if (layout_.zero_points.empty() || layout_.zero_points_are_middle || !has_integers() ||
        layout_.kind == Kind::kSignedBytes) {
      return {};
    }
    const std::optional<bool> symmetric =
        module_.declared == nullptr ? std::nullopt : module_.declared->symmetric;
    const TensorEntry& zeros = *tensors_.find(layout_.zero_points);
    const int middle = layout_.bits == 8 ? 128 : 8;
    const bool is_gptq = layout_.kind == Kind::kGptq;
    if (symmetric == true) {
      return invalid_input(fmt::format(
          "{}: expected zero points of {}{}, because quantization_config says that the codes are "
          "symmetric, found others",
          where(layout_.zero_points), middle,
          is_gptq ? fmt::format(", all stored as {} or all as {}", middle - 1, middle) : ""));
    }
    if (!is_gptq || symmetric || only_byte(zeros.bytes) != middle_byte(layout_.bits)) return {};
    return invalid_input(fmt::format(
        "{}: all are {}, which means {} in a file with sym: true and {} in one with sym: false; "
        "expected one of them in config.json: quantization_config",
        where(layout_.zero_points), middle, middle, middle + 1));
  }

  Status refuse_transposed() const {
    if (!module_.transposed) return {};
    return invalid_input(fmt::format(
        "{}: transposed codes with scales of groups are not supported; expected [rows, columns]",
        where(layout_.weight)));
  }

  void set_codes(Order order, const Part& codes, int64_t stride) {
    opened_.codes.order = order;
    opened_.codes.codes = codes.data();
    opened_.codes.stride = stride;
  }

  // ---- layouts ----

  Status open_fp8() {
    WIDEEP_TRY(check_no_zero_points());
    const Shape shape = module_.transposed ? Shape{k_, rows_} : Shape{rows_, k_};
    WIDEEP_TRY_ASSIGN(const Part codes, part(layout_.weight, "weight", shape, kE4m3));
    if (layout_.scales.empty()) {
      return invalid_input(
          fmt::format("{}: expected weight_scale_inv or weight_scale beside F8_E4M3, found neither",
                      where(layout_.weight)));
    }
    module_.transposed ? set_codes(Order::kColumns, codes, rows_)
                       : set_codes(Order::kRows, codes, k_);
    WIDEEP_TRY(open_scale_grid(kFp8Scales));
    return check_scales(448.0f);
  }

  Status open_signed_bytes() {
    WIDEEP_TRY(refuse_transposed());
    WIDEEP_TRY(check_no_zero_points());
    WIDEEP_TRY_ASSIGN(const Part codes, part(layout_.weight, "weight", {rows_, k_}, kSigned));
    set_codes(Order::kSignedBytes, codes, k_);
    WIDEEP_TRY(open_scale_grid(kFloats));
    return check_scales(128.0f);
  }

  Status open_packed_integers() {
    WIDEEP_TRY(refuse_transposed());
    WIDEEP_TRY(check_shape_tensor());
    const int64_t words = divided_up(k_, 32 / layout_.bits);
    WIDEEP_TRY_ASSIGN(const Part codes,
                      part(layout_.weight, "weight_packed", {rows_, words}, kWords));
    set_codes(Order::kRows, codes, words * 4);
    WIDEEP_TRY(open_scale_grid(kFloats));
    if (!layout_.zero_points_are_middle) {
      const int64_t lines = divided_up(rows_, 32 / layout_.bits);
      WIDEEP_TRY_ASSIGN(const Part zeros, part(layout_.zero_points, "weight_zero_point",
                                               {lines, layout_.num_groups}, kWords));
      set_zeros(CodedSource::Zeros::kWordsByGroups, zeros, layout_.num_groups);
    }
    WIDEEP_TRY(check_column_groups());
    return check_scales(256.0f);
  }

  Status open_gptq() {
    WIDEEP_TRY(refuse_transposed());
    const int64_t per_word = 32 / layout_.bits;
    WIDEEP_TRY_ASSIGN(const Part codes,
                      part(layout_.weight, "qweight", {divided_up(k_, per_word), rows_}, kWords));
    set_codes(Order::kLines, codes, rows_ * 4);
    return open_columns(divided_up(rows_, per_word));
  }

  Status open_awq() {
    WIDEEP_TRY(refuse_transposed());
    const int64_t words = divided_up(rows_, 8);
    WIDEEP_TRY_ASSIGN(const Part codes, part(layout_.weight, "qweight", {k_, words}, kWords));
    set_codes(Order::kAwqLines, codes, words * 4);
    return open_columns(words);
  }

  // Scales and zero points of GPTQ and AWQ; zero points are `words` words for each group.
  Status open_columns(int64_t words) {
    WIDEEP_TRY_ASSIGN(const Part scales,
                      part(layout_.scales, "scales", {layout_.num_groups, rows_}, kFloats));
    opened_.codes.scales = {scales.entry, scales.first, 1, 1, rows_};
    WIDEEP_TRY_ASSIGN(const Part zeros,
                      part(layout_.zero_points, "qzeros", {layout_.num_groups, words}, kWords));
    if (!layout_.zero_points_are_middle) {
      const bool is_awq = layout_.kind == Kind::kAwq;
      set_zeros(is_awq ? CodedSource::Zeros::kAwq : CodedSource::Zeros::kGroupsByWords, zeros,
                words);
      opened_.codes.zero_offset = is_awq ? 0 : 1;
    }
    WIDEEP_TRY(check_column_groups());
    return check_scales(256.0f);
  }

  Status open_microscaling() {
    WIDEEP_TRY(refuse_transposed());
    const bool is_nvfp4 = layout_.kind == Kind::kNvfp4;
    const int64_t groups = layout_.num_groups;
    const bool blocks = layout_.weight.ends_with("_blocks") || layout_.weight.ends_with(".blocks");
    const Shape shape = blocks ? Shape{rows_, groups, 16} : Shape{rows_, divided_up(k_, 2)};
    WIDEEP_TRY_ASSIGN(const Part codes, part(layout_.weight, "weight", shape, kBytes));
    set_codes(Order::kRows, codes, blocks ? groups * 16 : divided_up(k_, 2));
    const char* scales_name = blocks ? "scales" : "weight_scale";
    const std::span<const Dtype> dtypes = is_nvfp4 ? std::span<const Dtype>(kE4m3) : kE8m0;
    WIDEEP_TRY_ASSIGN(const Part scales,
                      part(layout_.scales, scales_name, {rows_, groups}, dtypes));
    opened_.codes.scales = {scales.entry, scales.first, 1, groups, 1};
    WIDEEP_TRY(check_byte_scales(is_nvfp4));
    if (!is_nvfp4) return {};
    WIDEEP_TRY_ASSIGN(const float scale, matrix_scale());
    opened_.codes.scale = layout_.inverse_matrix_scale ? 1.0f / scale : scale;
    return {};
  }

  // ---- scales ----

  // One scale, one for each row, or for blocks of rows × groups of columns.
  Status open_scale_grid(std::span<const Dtype> dtypes) {
    const std::string& name = layout_.scales;
    const TensorEntry* found = name.empty() ? nullptr : tensors_.find(name);
    if (found == nullptr) {
      return part(name, "weight_scale", {rows_, layout_.num_groups}, dtypes).status();
    }
    const bool all_experts_one = module_.num_experts > 0 && found->num_elements() == 1;
    if (all_experts_one || module_.num_experts == 0) {
      WIDEEP_TRY_ASSIGN(const TensorEntry* entry, tensors_.tensor(name, found->shape, dtypes));
      opened_.sources.push_back(entry->bytes);
      return set_scale_grid({entry, 0}, found->shape);
    }
    const Shape shape(found->shape.begin() + (found->shape.empty() ? 0 : 1), found->shape.end());
    WIDEEP_TRY_ASSIGN(const Part scales, part(name, "weight_scale", shape, dtypes));
    return set_scale_grid(scales, shape);
  }

  Status set_scale_grid(const Part& scales, const Shape& stored) {
    const Shape shape = without_ones(stored);
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    WIDEEP_TRY(check_blocks(shape, count));
    ScaleGrid& grid = opened_.codes.scales;
    grid = {scales.entry, scales.first, rows_, 0, 0};
    if (count == 1) return {};
    const int64_t lines = module_.transposed || shape.size() < 2 ? count : shape[0];
    grid.rows_each = block_size(rows_, lines);
    grid.row_stride = count / lines;
    grid.column_stride = 1;
    const bool fits = grid.rows_each > 0 && divided_up(rows_, grid.rows_each) == lines &&
                      grid.row_stride == layout_.num_groups && shape.size() <= 2;
    if (fits) return {};
    return invalid_input(fmt::format(
        "{}: expected a scale of the matrix, of each row or of equal blocks of {}, found shape {}",
        where(layout_.scales), tensor_files::describe({rows_, k_}), tensor_files::describe(shape)));
  }

  // The number of scales alone does not show the sizes of blocks: those of a transposed tensor may
  // look right.
  Status check_blocks(const Shape& shape, int64_t count) const {
    const DeclaredLayout* declared = module_.declared;
    if (layout_.kind != Kind::kFp8 || declared == nullptr || declared->block_rows == 0 ||
        module_.transposed) {
      return {};
    }
    const int64_t rows = declared->block_rows, columns = declared->block_columns;
    const Shape expected = {divided_up(rows_, rows), divided_up(k_, columns)};
    if (shape == expected || (count == 1 && expected == Shape{1, 1})) return {};
    return invalid_input(fmt::format(
        "{}: expected shape {}, a scale for blocks of {} × {} as quantization_config.{} says, "
        "found {}",
        where(layout_.scales), tensor_files::describe(expected), rows, columns, declared->block_key,
        tensor_files::describe(shape)));
  }

  // largest: the largest element, so that values are finite.
  Status check_scales(float largest) const {
    const CodedSource& codes = opened_.codes;
    const ScaleGrid& grid = codes.scales;
    const bool powers = grid.entry->dtype == Dtype::kU8 || grid.entry->dtype == Dtype::kF8E8M0;
    const bool negative = module_.declared != nullptr && module_.declared->has_negative_scales;
    int64_t last = -1;
    for (int row = 0; row < n_; ++row) {
      const int64_t line = codes.stored_row(row) / grid.rows_each;
      if (line == last) continue;
      last = line;
      for (int64_t group = 0; group < codes.num_groups; ++group) {
        const int64_t index = grid.index(codes.stored_row(row), group);
        float scale = 0.0f;
        if (powers) {
          scale = float_from_e8m0(static_cast<uint8_t>(grid.entry->bytes[size_t(index)]));
        } else {
          to_float32(*grid.entry, index, 1, &scale);
        }
        if (!std::isfinite(scale * largest)) {
          return invalid_input(fmt::format("{}: expected finite scales, found {} at {}",
                                           where(layout_.scales), scale, index));
        }
        if (scale > 0.0f || (scale < 0.0f && negative && has_integers())) continue;
        // Groups of zeros may have a scale of 0.
        if (scale == 0.0f && is_zero(row, group)) continue;
        return invalid_input(fmt::format("{}: expected positive scales, found {} at {}{}",
                                         where(layout_.scales), scale, index,
                                         scale == 0.0f ? ", of codes that are not all zero" : ""));
      }
    }
    return {};
  }

  // All codes of a group in the rows from `row` on that share its scale.
  bool is_zero(int row, int64_t group) const {
    const CodedSource& codes = opened_.codes;
    const int64_t rows_each = codes.scales.rows_each;
    const int64_t line = codes.stored_row(row) / rows_each;
    for (; row < n_ && codes.stored_row(row) / rows_each == line; ++row) {
      if (!codes.is_zero(row, group)) return false;
    }
    return true;
  }

  // e4m3 scales must be finite and not negative, e8m0 scales times the largest element (6) finite
  // bf16 numbers.
  Status check_byte_scales(bool is_e4m3) const {
    const unsigned largest = is_e4m3 ? 0x7e : 252;
    const CodedSource& codes = opened_.codes;
    for (int row = 0; row < n_; ++row) {
      const auto* line = reinterpret_cast<const uint8_t*>(codes.scales.at(codes.stored_row(row)));
      const auto* bad =
          std::find_if(line, line + codes.num_groups, [&](uint8_t code) { return code > largest; });
      if (bad == line + codes.num_groups) continue;
      const int64_t at = codes.scales.index(codes.stored_row(row), bad - line);
      if (is_e4m3) {
        return invalid_input(
            fmt::format("{}: expected scales from 0 to 448, found the code {:#04x} at {}",
                        where(layout_.scales), *bad, at));
      }
      return invalid_input(fmt::format("{}: expected scales up to 2^{}, found the code {} at {}",
                                       where(layout_.scales), largest - 127, *bad, at));
    }
    return {};
  }

  // A scalar or a list of one number; with experts, one for each or one for all.
  Result<float> matrix_scale() {
    const char* suffix = layout_.inverse_matrix_scale ? "weight_global_scale" : "weight_scale_2";
    const std::string& name = layout_.matrix_scale;
    const TensorEntry* found = name.empty() ? nullptr : tensors_.find(name);
    const int64_t count = found == nullptr ? 0 : found->num_elements();
    const bool one_each = module_.num_experts > 0 && count == module_.num_experts;
    const bool fits = count == 1 || one_each;
    WIDEEP_TRY_ASSIGN(const TensorEntry* entry,
                      tensors_.tensor(name.empty() ? module_.name + "." + suffix : name,
                                      fits ? found->shape : with_experts({}), kFloats));
    float scale = 0.0f;
    to_float32(*entry, one_each ? module_.expert : 0, 1, &scale);
    constexpr float kLargestBf16 = 0x1.fep127f, kLargestCode = 448.0f * 6.0f;
    const float factor = layout_.inverse_matrix_scale ? 1.0f / scale : scale;
    const bool usable = scale > 0.0f && std::isfinite(scale) && std::isfinite(1.0f / scale) &&
                        factor <= kLargestBf16 / kLargestCode;
    if (usable || (scale == 0.0f && !layout_.inverse_matrix_scale)) return scale;
    return invalid_input(
        fmt::format("{}: expected positive, finite scales with finite weights, found {} at {}",
                    where(name), scale, one_each ? module_.expert : 0));
  }

  // ---- other parts ----

  void set_zeros(CodedSource::Zeros zeros, const Part& words, int64_t stride) {
    opened_.codes.zeros = zeros;
    opened_.codes.zero_words = words.data();
    opened_.codes.zero_stride = stride;
  }

  // Symmetric quantisation may store zero points that are all zero.
  Status check_no_zero_points() const {
    const TensorEntry* zeros =
        layout_.zero_points.empty() ? nullptr : tensors_.find(layout_.zero_points);
    if (zeros == nullptr) return {};
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (std::all_of(zeros->bytes.begin(), zeros->bytes.end(), is_zero)) return {};
    return invalid_input(
        fmt::format("{}: expected symmetric quantisation, found zero points other than 0; quantise "
                    "the model with symmetric: true",
                    where(layout_.zero_points)));
  }

  // Checks compressed-tensors' "weight_shape", which repeats the shape: with packed codes the
  // tensor's own shape does not determine the number of columns.
  Status check_shape_tensor() const {
    if (layout_.shape.empty() || module_.num_experts > 0) return {};
    WIDEEP_TRY_ASSIGN(const TensorEntry* entry, tensors_.tensor(layout_.shape, {2}, kIntegers));
    const Shape shape = {integer_at(*entry, 0), integer_at(*entry, 1)};
    if (shape == Shape{rows_, k_}) return {};
    return invalid_input(fmt::format("{}: expected {}, found {}", where(layout_.shape),
                                     tensor_files::describe({rows_, k_}),
                                     tensor_files::describe(shape)));
  }

  // Columns must be in order: column i in group ⌊i / group⌋. All −1: not set.
  Status check_column_groups() const {
    if (layout_.column_groups.empty()) return {};
    WIDEEP_TRY_ASSIGN(const TensorEntry* entry,
                      tensors_.tensor(layout_.column_groups, with_experts({k_}), kIntegers));
    const int64_t first = int64_t{k_} * module_.expert;
    if (integer_at(*entry, first) == -1) return {};
    for (int64_t i = 0; i < k_; ++i) {
      const int64_t group = integer_at(*entry, first + i);
      if (group == i / layout_.group) continue;
      return invalid_input(fmt::format(
          "{}: expected columns in order, found column {} in group {} instead of {} (desc_act or "
          "actorder: true), which is not supported; quantise the model with desc_act: false",
          where(layout_.column_groups), i, group, i / layout_.group));
    }
    return {};
  }

  const StoredModule& module_;
  const StoredLayout& layout_;
  const TensorSource& tensors_;
  int n_, k_;
  int64_t rows_ = 0;  // of the stored matrix
  OpenedCodes opened_;
};

}  // namespace

Result<OpenedCodes> open_coded(const StoredModule& module, const StoredLayout& layout, int n,
                               int k) {
  return Opener(module, layout, n, k).open();
}

}  // namespace wideep::weights
