// SPDX-License-Identifier: Apache-2.0
//
// Reads the storage format of weights from quantization_config or hf_quant_config.json. The tensors
// themselves decide how each matrix is read (weights/stored_matrix.h), so that lists of modules
// that are not quantised need not be read. Here methods are refused whose tensors could be taken
// for something else.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <string>

#include "base/printable.h"
#include "base/try.h"
#include "model/config_fields.h"

namespace wideep::model {
namespace {

using formats::JsonDocument;
using formats::JsonObject;
using kernels::WeightFormat;

// The word of a key, which must be one of `words`; the first if it is absent.
std::string one_of(const JsonObject& object, std::string_view key,
                   std::initializer_list<std::string_view> words) {
  const std::string found = object.string_or(key, std::string(*words.begin()));
  if (std::find(words.begin(), words.end(), found) == words.end()) {
    object.complain(key, fmt::format("expected {}, found {}", fmt::join(words, " or "),
                                     base::printable(found)));
  }
  return found;
}

// [rows, columns] that share a scale of fp8. Only powers of two follow from the number of scales.
WeightFormat read_block(const JsonObject& object, std::string_view key) {
  const std::vector<int64_t> block = object.integers_or(key, {});
  if (block.empty()) return WeightFormat::kFp8;
  const auto is_power = [](int64_t size) {
    return size > 0 && std::has_single_bit(static_cast<uint64_t>(size));
  };
  if (block.size() != 2 || !is_power(block[0]) || !is_power(block[1])) {
    object.complain(key, fmt::format("expected two powers of two, rows and columns, found [{}]",
                                     fmt::join(block, ", ")));
  }
  return block.back() >= 128 ? WeightFormat::kFp8 : WeightFormat::kBf16;
}

WeightFormat read_fp8(const JsonObject& config) {
  one_of(config, "fmt", {"e4m3", "float8_e4m3fn"});
  one_of(config, "scale_fmt", {"float", "ue8m0"});
  return read_block(config, "weight_block_size");
}

// Integers of 4 or 8 bits. Zero points take one bit more (stored_matrix.h).
WeightFormat integers(const JsonObject& object, std::string_view key, bool symmetric) {
  const int64_t bits = object.integer(key);
  if (bits != 4 && bits != 8) {
    object.complain(key, fmt::format("expected 4 or 8, found {}", bits));
  }
  if (bits == 4) return symmetric ? WeightFormat::kInt4 : WeightFormat::kInt8;
  return symmetric ? WeightFormat::kInt8 : WeightFormat::kBf16;
}

// The weights of a group in one of compressed-tensors' formats.
WeightFormat read_group(const JsonObject& weights, const std::string& layout) {
  if (layout == "pack-quantized" || layout == "int-quantized") {
    one_of(weights, "type", {"int"});
    const bool symmetric = weights.boolean_or("symmetric", true);
    return integers(weights, "num_bits", symmetric);
  }
  one_of(weights, "type", {"float"});
  require_flag(weights, "symmetric", true);
  if (layout == "nvfp4-pack-quantized") return WeightFormat::kNvfp4;
  if (layout == "mxfp4-pack-quantized") return WeightFormat::kMxfp4;
  if (layout == "mxfp8-quantized") return WeightFormat::kBf16;
  return read_block(weights, "block_structure");
}

// Groups may have formats of their own; the first one stands for most matrices.
WeightFormat read_compressed_tensors(const JsonObject& config) {
  const auto format_of = [](const JsonObject& object) {
    return one_of(
        object, "format",
        {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
         "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision"});
  };
  const std::string whole = format_of(config);
  if (config.has("sparsity_config") && config.object("sparsity_config").has("format")) {
    one_of(config.object("sparsity_config"), "format", {"dense"});
  }
  std::vector<WeightFormat> formats;
  const JsonObject groups = config.object("config_groups");
  for (const std::string& name : groups.keys()) {
    const JsonObject group = groups.object(name);
    if (!group.has("weights")) continue;
    const JsonObject weights = group.object("weights");
    std::string layout = whole;
    if (whole == "mixed-precision") layout = format_of(group);
    if (layout == "naive-quantized") {
      layout = weights.string_or("type", "int") == "int" ? "int-quantized" : "float-quantized";
    }
    formats.push_back(read_group(weights, layout));
  }
  return formats.empty() ? WeightFormat::kBf16 : formats.front();
}

WeightFormat read_modelopt(const JsonObject& config) {
  const std::string algorithm = one_of(config, "quant_algo",
                                       {"NVFP4", "W4A16_NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN",
                                        "FP8_PB_WO", "MXFP8", "MIXED_PRECISION"});
  if (algorithm == "MXFP8") return WeightFormat::kBf16;
  return algorithm.starts_with("FP8") ? WeightFormat::kFp8 : WeightFormat::kNvfp4;
}

// Version 2 of the format stores zero points without subtracting 1, and no tensor tells.
WeightFormat read_gptq(const JsonObject& config) {
  one_of(config, "checkpoint_format", {"gptq"});
  return integers(config, "bits", config.boolean_or("sym", true));
}

WeightFormat read_auto_round(const JsonObject& config) {
  one_of(config, "packing_format", {"auto_round:auto_gptq"});
  return integers(config, "bits", config.boolean_or("sym", true));
}

WeightFormat read_awq(const JsonObject& config) {
  std::string version = config.string_or("version", "gemm");
  std::transform(version.begin(), version.end(), version.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (version != "gemm") {
    config.complain("version", "expected gemm, found " + base::printable(version));
  }
  if (config.integer("bits") != 4) config.complain("bits", "expected 4");
  return WeightFormat::kInt8;
}

}  // namespace

WeightFormat read_quantization(const JsonObject& root) {
  if (!root.has("quantization_config")) return WeightFormat::kBf16;
  const JsonObject config = root.object("quantization_config");
  const std::string method = config.string_or("quant_method", "(unnamed)");
  if (method == "fp8") return read_fp8(config);
  if (method == "compressed-tensors") return read_compressed_tensors(config);
  if (method == "mxfp4") return WeightFormat::kMxfp4;
  if (method.starts_with("modelopt")) {
    return read_modelopt(config.has("quantization") ? config.object("quantization") : config);
  }
  if (method == "gptq") return read_gptq(config);
  if (method == "awq") return read_awq(config);
  if (method == "auto-round") return read_auto_round(config);
  root.complain("quantization_config",
                fmt::format("quant_method {} is not supported; supported: fp8, compressed-tensors, "
                            "modelopt, mxfp4, gptq, awq, auto-round",
                            base::printable(method)));
  return WeightFormat::kBf16;
}

Status read_hf_quant_config(const std::string& path, WeightFormat* format) {
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return {};
  WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::read(path));
  const JsonObject quantization = document.root().object("quantization");
  if (quantization.has("quant_algo")) *format = read_modelopt(quantization);
  return document.status();
}

}  // namespace wideep::model
