// SPDX-License-Identifier: Apache-2.0
//
// One function for each layout, and one text for quantization_config beside it: both must say the
// same, or a reader decodes with the wrong rule. Codes are written as they are: the orders of
// CodedMatrix are those of the layouts, only seen as words or bytes. Modules that are not
// quantised are listed by name, because a reader takes all others for quantised.
#include "weights/quantized_tensors.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "formats/json_text.h"

namespace wideep::weights {
namespace {

using kernels::CodedMatrix;
using kernels::QuantizedMatrix;
using kernels::WeightFormat;

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Writes the scales as bf16. That loses nothing: the quantiser rounds them to bf16
// (coded_matrix.h).
NamedTensor bf16_scales(const std::string& name, const CodedMatrix& view) {
  std::vector<Bf16> scales;
  for (int row = 0; row < view.n; ++row) {
    for (int group = 0; group < view.num_groups(); ++group) {
      scales.emplace_back(view.group_scale(row, group));
    }
  }
  return {name, Dtype::kBf16, {view.n, view.num_groups()}, bytes_of(scales)};
}

std::vector<NamedTensor> fp8_tensors(const std::string& module, const QuantizedMatrix& matrix) {
  const CodedMatrix& view = matrix.view;
  const int block_rows = (view.n + view.scale_rows - 1) / view.scale_rows;
  return {
      {module + ".weight", Dtype::kF8E4M3, {view.n, view.k}, matrix.codes},
      {module + ".weight_scale_inv", Dtype::kF32, {block_rows, view.num_groups()}, matrix.scales}};
}

std::vector<NamedTensor> integer_tensors(const std::string& module, const QuantizedMatrix& matrix) {
  const CodedMatrix& view = matrix.view;
  const int per_word = view.format == WeightFormat::kInt8 ? 4 : 8;
  const std::vector<int64_t> shape = {view.n, view.k};
  return {{module + ".weight_packed", Dtype::kI32, {view.n, view.k / per_word}, matrix.codes},
          bf16_scales(module + ".weight_scale", view),
          {module + ".weight_shape", Dtype::kI64, {2}, bytes_of(shape)}};
}

std::vector<NamedTensor> mxfp4_tensors(const std::string& module, const QuantizedMatrix& matrix) {
  const CodedMatrix& view = matrix.view;
  return {{module + ".weight_packed", Dtype::kU8, {view.n, view.k / 2}, matrix.codes},
          {module + ".weight_scale", Dtype::kU8, {view.n, view.num_groups()}, matrix.scales}};
}

std::vector<NamedTensor> nvfp4_tensors(const std::string& module, const QuantizedMatrix& matrix) {
  const CodedMatrix& view = matrix.view;
  return {{module + ".weight", Dtype::kU8, {view.n, view.k / 2}, matrix.codes},
          {module + ".weight_scale", Dtype::kF8E4M3, {view.n, view.num_groups()}, matrix.scales},
          {module + ".weight_scale_2", Dtype::kF32, {}, bytes_of(std::vector<float>{view.scale})}};
}

using Json = nlohmann::ordered_json;

// compressed-tensors' configuration for quantised weights and activations that are not quantised.
Json packed_config(const char* layout, const Json& weights,
                   const std::vector<std::string>& ignored) {
  return {{"quant_method", "compressed-tensors"},
          {"format", layout},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", nullptr},
              {"output_activations", nullptr}}}}},
          {"ignore", ignored}};
}

Json group_weights(int bits, const char* type, int group) {
  return {{"num_bits", bits},    {"type", type},     {"symmetric", true},  {"strategy", "group"},
          {"group_size", group}, {"dynamic", false}, {"actorder", nullptr}};
}

}  // namespace

bool fits_layout(WeightFormat format, int group, int k) {
  return k % group == 0 || format == WeightFormat::kFp8;
}

std::vector<NamedTensor> quantized_tensors(const std::string& module,
                                           const QuantizedMatrix& matrix) {
  WIDEEP_CHECK(matrix.view.format == WeightFormat::kFp8 ||
               matrix.view.k % 8 == 0);  // codes fill whole words
  switch (matrix.view.format) {
    case WeightFormat::kFp8:
      return fp8_tensors(module, matrix);
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return integer_tensors(module, matrix);
    case WeightFormat::kMxfp4:
      return mxfp4_tensors(module, matrix);
    case WeightFormat::kNvfp4:
      return nvfp4_tensors(module, matrix);
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
    case WeightFormat::kInt4m:  // no checkpoint has these
    case WeightFormat::kInt8m:
    case WeightFormat::kInt4h:
    case WeightFormat::kInt8h:
      break;
  }
  WIDEEP_CHECK(matrix.view.format == WeightFormat::kNvfp4);
  return {};
}

std::string quantization_config(WeightFormat format, int group,
                                const std::vector<std::string>& ignored) {
  Json config;
  if (format == WeightFormat::kFp8) {
    config = {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {group, group}},
              {"modules_to_not_convert", ignored}};
  } else if (format == WeightFormat::kNvfp4) {
    config = {{"quant_method", "modelopt"},
              {"quant_algo", "NVFP4"},
              {"group_size", group},
              {"ignore", ignored}};
  } else if (format == WeightFormat::kMxfp4) {
    config = packed_config("mxfp4-pack-quantized", group_weights(4, "float", group), ignored);
  } else {
    const int bits = format == WeightFormat::kInt8 ? 8 : 4;
    config = packed_config("pack-quantized", group_weights(bits, "int", group), ignored);
  }
  return formats::json_text(config);
}

}  // namespace wideep::weights
