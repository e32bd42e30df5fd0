// SPDX-License-Identifier: Apache-2.0
//
// Names decide first (blocks, weight_packed, weight, qweight), then the dtypes of codes and
// scales, at last shapes, where one name and dtype may mean several layouts: words of 4 or 8 bits,
// GPTQ or AWQ. quantization_config is not asked, except for what tensors do not show: whether
// GPTQ's zero points that all look like the middle are meant as it.
//
// A layout that is nearly right is returned with the names that were found, so that open_coded()
// can say which tensor is missing or has the wrong shape.
#include "weights/stored_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>

namespace wideep::weights {
namespace {

using kernels::WeightFormat;
using tensor_files::TensorEntry;
using Kind = StoredLayout::Kind;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Finder {
 public:
  Finder(const StoredModule& module, int64_t k) : module_(module), k_(k) {}

  StoredLayout find() {
    if (find_name("blocks", &layout_.weight)) {
      find_name("scales", &layout_.scales);
      set_microscaling(WeightFormat::kMxfp4);
    } else if (find_name("weight_packed", &layout_.weight)) {
      find_packed();
    } else if (find_name("weight", &layout_.weight) || has_bare_name()) {
      find_weight();
    } else if (find_name("qweight", &layout_.weight)) {
      find_columns_of_words();
    }
    return layout_;
  }

 private:
  // "<module>.part" or "<module>_part".
  bool find_name(const char* part, std::string* name) const {
    for (const char* separator : {".", "_"}) {
      std::string found = module_.name + separator + part;
      if (!module_.source->has(found)) continue;
      *name = std::move(found);
      return true;
    }
    return false;
  }
  bool has_bare_name() {
    if (module_.name.empty() || !module_.source->has(module_.name)) return false;
    layout_.weight = module_.name;
    return true;
  }
  const TensorEntry* entry(const std::string& name) const {
    return name.empty() ? nullptr : module_.source->find(name);
  }
  // The shape of an expert's part.
  std::vector<int64_t> shape_of(const std::string& name) const {
    const TensorEntry* found = entry(name);
    if (found == nullptr) return {};
    const bool experts = module_.num_experts > 0 && !found->shape.empty();
    return without_ones({found->shape.begin() + (experts ? 1 : 0), found->shape.end()});
  }
  bool is(const std::string& name, Dtype dtype) const {
    const TensorEntry* found = entry(name);
    return found != nullptr && found->dtype == dtype;
  }

  void find_scales() {
    for (const char* part : {"weight_scale_inv", "weight_scale", "scale_inv", "scale"}) {
      if (find_name(part, &layout_.scales)) return;
    }
  }

  void find_weight() {
    const TensorEntry& weight = *entry(layout_.weight);
    layout_.kind = Kind::kFloats;
    if (weight.dtype == Dtype::kF8E4M3) {
      find_scales();
      layout_.kind = Kind::kFp8;
      layout_.format = WeightFormat::kFp8;
      layout_.bits = 8;
      find_name("weight_zero_point", &layout_.zero_points);
      set_group_of_columns(shape_of(layout_.scales), block_size);
    } else if (weight.dtype == Dtype::kU8) {
      find_scales();
      const bool is_nvfp4 = is(layout_.scales, Dtype::kF8E4M3);
      if (is_nvfp4) find_name("weight_scale_2", &layout_.matrix_scale);
      set_microscaling(is_nvfp4 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4);
    } else if (weight.dtype == Dtype::kI8) {
      find_scales();
      if (is(layout_.scales, Dtype::kF8E8M0)) return set_microscaling(WeightFormat::kMxfp4);
      layout_.kind = Kind::kSignedBytes;
      layout_.format = WeightFormat::kInt8;
      layout_.bits = 8;
      find_name("weight_zero_point", &layout_.zero_points);
      set_group_of_columns(shape_of(layout_.scales), group_size);
    }
  }

  void find_packed() {
    find_name("weight_scale", &layout_.scales);
    find_name("weight_shape", &layout_.shape);
    find_name("weight_zero_point", &layout_.zero_points);
    find_name("weight_g_idx", &layout_.column_groups);
    if (is(layout_.weight, Dtype::kU8)) {
      const bool is_nvfp4 = is(layout_.scales, Dtype::kF8E4M3);
      if (is_nvfp4) find_name("weight_global_scale", &layout_.matrix_scale);
      layout_.inverse_matrix_scale = is_nvfp4;
      return set_microscaling(is_nvfp4 ? WeightFormat::kNvfp4 : WeightFormat::kMxfp4);
    }
    const std::vector<int64_t> codes = shape_of(layout_.weight);
    const bool is_int8 = codes.size() == 2 && codes[1] == divided_up(k_, 4);
    set_integers(Kind::kPackedIntegers, is_int8 ? 8 : 4);
    set_group_of_columns(shape_of(layout_.scales), group_size);
  }

  // GPTQ packs along k, so that the first dimension is shorter than k; AWQ packs along n.
  void find_columns_of_words() {
    find_name("scales", &layout_.scales);
    find_name("qzeros", &layout_.zero_points);
    find_name("g_idx", &layout_.column_groups);
    const std::vector<int64_t> codes = shape_of(layout_.weight);
    const int64_t lines = codes.empty() ? 0 : codes[0];
    set_integers(lines == k_ ? Kind::kAwq : Kind::kGptq, lines == divided_up(k_, 4) ? 8 : 4);
    std::vector<int64_t> scales = shape_of(layout_.scales);
    std::reverse(scales.begin(), scales.end());  // stored as [groups, n]
    set_group_of_columns(scales, group_size);
  }

  void set_microscaling(WeightFormat format) {
    layout_.kind = format == WeightFormat::kNvfp4 ? Kind::kNvfp4 : Kind::kMxfp4;
    layout_.format = format;
    layout_.bits = 4;
    layout_.group = kernels::default_group(format);
    layout_.num_groups = divided_up(k_, layout_.group);
  }

  // Codes minus a zero point that is not the middle need one bit more: 4 bits become int8 codes, 8
  // bits have no format.
  void set_integers(Kind kind, int bits) {
    layout_.kind = kind;
    layout_.bits = bits;
    const bool middle = layout_.zero_points.empty() || (k_ > 0 && all_zero_points_are_middle());
    if (bits == 4) layout_.format = middle ? WeightFormat::kInt4 : WeightFormat::kInt8;
    if (bits == 8) layout_.format = middle ? WeightFormat::kInt8 : WeightFormat::kBf16;
    if (middle) layout_.zero_points_are_middle = true;
  }

  // GPTQ stores one less. Some programs do not, which nothing but sym shows: there, both are the
  // middle.
  bool all_zero_points_are_middle() const {
    const std::optional<std::byte> all = only_byte(entry(layout_.zero_points)->bytes);
    const std::byte middle = middle_byte(layout_.bits);
    if (layout_.kind != Kind::kGptq) return all == middle;
    const bool symmetric = module_.declared != nullptr && module_.declared->symmetric == true;
    return all == middle_byte(layout_.bits, 1) || (symmetric && all == middle);
  }

  template <typename Size>
  void set_group_of_columns(const std::vector<int64_t>& scales, Size size) {
    layout_.num_groups = scales.size() < 2 ? 1 : scales.back();
    layout_.group = layout_.num_groups == 1 ? k_ : size(k_, layout_.num_groups);
  }

  // Integers are quantised in groups of equal size, if possible.
  static int64_t group_size(int64_t size, int64_t groups) {
    return groups > 0 && size % groups == 0 ? size / groups : block_size(size, groups);
  }

  const StoredModule& module_;
  int64_t k_;
  StoredLayout layout_;
};

}  // namespace

std::vector<std::string> StoredLayout::names() const {
  std::vector<std::string> all;
  for (const std::string* name :
       {&weight, &scales, &matrix_scale, &zero_points, &column_groups, &shape}) {
    if (!name->empty()) all.push_back(*name);
  }
  return all;
}

MatrixForm StoredLayout::form(int64_t k) const {
  switch (format) {
    case WeightFormat::kFp8:
      if (group % 128 == 0 || group >= k) return default_form(format);
      return default_form(WeightFormat::kBf16);
    case WeightFormat::kInt8:
    case WeightFormat::kInt4: {
      if (group >= k) return {format, 128};
      // The largest part of a group that the kernels take.
      int64_t part = std::min<int64_t>(group, 128) / 8 * 8;
      while (part > 0 && group % part != 0) part -= 8;
      return part > 0 ? MatrixForm{format, static_cast<int>(part)}
                      : default_form(WeightFormat::kBf16);
    }
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
    case WeightFormat::kInt4m:
    case WeightFormat::kInt8m:
    case WeightFormat::kInt4h:
    case WeightFormat::kInt8h:
      return default_form(format);
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
      break;
  }
  return default_form(WeightFormat::kBf16);
}

std::vector<int64_t> without_ones(const std::vector<int64_t>& shape) {
  if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) return {shape[0], shape[2]};
  return shape;
}

std::optional<std::byte> only_byte(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const bool same = std::ranges::all_of(bytes, [&](std::byte each) { return each == bytes[0]; });
  return same ? std::optional(bytes[0]) : std::nullopt;
}

std::byte middle_byte(int bits, unsigned less) {
  const unsigned middle = (bits == 8 ? 128u : 8u) - less;
  return static_cast<std::byte>(bits == 8 ? middle : middle * 0x11u);
}

StoredLayout stored_layout(const StoredModule& module, int64_t k) {
  return Finder(module, k).find();
}

int64_t block_size(int64_t size, int64_t blocks) {
  if (blocks == 1) return size;
  if (blocks < 1 || blocks > size) return 0;
  const auto power =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(divided_up(size, blocks))));
  if (divided_up(size, power) == blocks) return power;
  return size % blocks == 0 ? size / blocks : 0;
}

}  // namespace wideep::weights
