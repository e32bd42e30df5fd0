// SPDX-License-Identifier: Apache-2.0
//
// Reads the storage format of weights from quantization_config or hf_quant_config.json. The tensors
// themselves decide how each matrix is read (weights/stored_matrix.h), so that lists of modules
// that are not quantised need not be read. Here methods are refused whose tensors could be taken
// for something else.
//
// Each method has a reader, which returns the format of most matrices and what the file declares of
// the layout; the tensors are checked against that later. Keys that no reader has asked for are
// left to QuantizationKeys.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "model/config/config_fields.h"
#include "model/config/quantization_keys.h"

namespace wideep::model {
namespace {

using formats::JsonDocument;
using formats::JsonObject;
using kernels::WeightFormat;
using weights::DeclaredLayout;

// What one object says.
struct Quantization {
  WeightFormat format = WeightFormat::kBf16;
  DeclaredLayout declared;
};

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
Quantization read_block(const JsonObject& object, std::string_view key) {
  Quantization read{.format = WeightFormat::kFp8, .declared = {}};
  const std::vector<int64_t> block = object.integers_or(key, {});
  if (block.empty()) return read;
  const auto is_power = [](int64_t size) {
    return size > 0 && std::has_single_bit(static_cast<uint64_t>(size));
  };
  if (block.size() != 2 || !is_power(block[0]) || !is_power(block[1])) {
    object.complain(key, fmt::format("expected two powers of two, rows and columns, found [{}]",
                                     fmt::join(block, ", ")));
    return read;
  }
  if (block[1] < 128) read.format = WeightFormat::kBf16;
  read.declared.block_rows = block[0];
  read.declared.block_columns = block[1];
  read.declared.block_key = key;
  return read;
}

Quantization read_fp8(const JsonObject& config) {
  one_of(config, "fmt", {"e4m3", "float8_e4m3fn"});
  one_of(config, "scale_fmt", {"float", "ue8m0"});
  return read_block(config, "weight_block_size");
}

// Integers of 4 or 8 bits. Zero points take one bit more (stored_matrix.h). group_size: −1, or an
// absent key of GPTQ's: rows.
Quantization integers(const JsonObject& object, std::string_view bits_key,
                      std::string_view group_key, bool symmetric) {
  const int64_t bits = object.integer(bits_key);
  if (bits != 4 && bits != 8) {
    object.complain(bits_key, fmt::format("expected 4 or 8, found {}", bits));
  }
  Quantization read;
  read.format = symmetric ? WeightFormat::kInt8 : WeightFormat::kBf16;
  if (bits == 4) read.format = symmetric ? WeightFormat::kInt4 : WeightFormat::kInt8;
  read.declared.bits = static_cast<int>(bits);
  read.declared.symmetric = symmetric;
  if (!object.has(group_key)) return read;
  read.declared.group = object.integer(group_key, {.min = -1, .max = kMaxIntermediate});
  read.declared.group_key = group_key;
  return read;
}

// sym. A null means neither.
bool read_symmetric(const JsonObject& object, std::string_view key, bool by_default) {
  if (object.raw().contains(key) && !object.has(key)) {
    object.complain(key, "expected true or false, found null");
  }
  return object.boolean_or(key, by_default);
}

// The weights of a group in one of compressed-tensors' formats.
Quantization read_group(const JsonObject& weights, const std::string& layout) {
  std::string strategy;
  if (weights.has("strategy")) {
    strategy =
        one_of(weights, "strategy",
               {"tensor", "channel", "group", "block", "token", "tensor_group", "attn_head"});
  }
  if (layout == "pack-quantized" || layout == "int-quantized") {
    one_of(weights, "type", {"int"});
    Quantization read =
        integers(weights, "num_bits", "group_size", read_symmetric(weights, "symmetric", true));
    if (strategy != "group") read.declared.group = {};
    return read;
  }
  one_of(weights, "type", {"float"});
  require_flag(weights, "symmetric", true);
  weights.has("num_bits");
  weights.has("group_size");
  if (layout == "nvfp4-pack-quantized") return {.format = WeightFormat::kNvfp4, .declared = {}};
  if (layout == "mxfp4-pack-quantized") return {.format = WeightFormat::kMxfp4, .declared = {}};
  if (layout == "mxfp8-quantized") return {};
  return read_block(weights, "block_structure");
}

// What the groups of a file say alike.
DeclaredLayout common(const std::vector<Quantization>& groups) {
  DeclaredLayout all = groups.front().declared;
  for (const Quantization& each : groups) {
    const DeclaredLayout& one = each.declared;
    if (one.bits != all.bits) all.bits = 0;
    if (one.group != all.group) all.group = {};
    if (one.symmetric != all.symmetric) all.symmetric = {};
    if (one.block_rows != all.block_rows || one.block_columns != all.block_columns) {
      all.block_rows = all.block_columns = 0;
    }
  }
  return all;
}

// Groups may have formats of their own; the first one stands for most matrices.
Quantization read_compressed_tensors(const JsonObject& config, QuantizationKeys* keys) {
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
  std::vector<Quantization> read;
  const JsonObject groups = config.object("config_groups");
  for (const std::string& name : groups.keys()) {
    const JsonObject group = groups.object(name);
    const std::string path = "config_groups." + name;
    std::string layout = whole;
    if (whole == "mixed-precision") layout = format_of(group);
    group.has("format");
    if (group.has("weights")) {
      const JsonObject weights = group.object("weights");
      if (layout == "naive-quantized") {
        layout = weights.string_or("type", "int") == "int" ? "int-quantized" : "float-quantized";
      }
      read.push_back(read_group(weights, layout));
      keys->check(weights, path + ".weights");
    }
    keys->check(group, path);
  }
  if (read.empty()) return {};
  return {.format = read.front().format, .declared = common(read)};
}

Quantization read_modelopt(const JsonObject& config) {
  const std::string algorithm = one_of(config, "quant_algo",
                                       {"NVFP4", "W4A16_NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN",
                                        "FP8_PB_WO", "MXFP8", "MIXED_PRECISION"});
  require_flag(config, "pre_quant_scale", false);
  require_flag(config, "has_zero_point", false);
  for (const char* known : {"group_size", "config_groups"}) config.has(known);
  if (algorithm == "MXFP8") return {};
  return {.format = algorithm.starts_with("FP8") ? WeightFormat::kFp8 : WeightFormat::kNvfp4,
          .declared = {}};
}

// Some modules have settings of their own, which the tensors show, but for their symmetry.
void allow_exceptions(const JsonObject& config, std::string_view key, DeclaredLayout* declared) {
  if (!config.has(key) || says_nothing(config.raw().at(std::string(key)))) return;
  declared->bits = 0;
  declared->group = {};
  for (const nlohmann::json& each : config.raw().at(std::string(key))) {
    if (each.is_object() && each.contains("sym")) declared->symmetric = {};
  }
}

// Version 2 of the format stores zero points without subtracting 1, and no tensor tells.
Quantization read_gptq(const JsonObject& config) {
  one_of(config, "checkpoint_format", {"gptq"});
  one_of(config, "format", {"gptq"});
  one_of(config, "pack_dtype", {"int32"});
  require_flag(config, "is_marlin_format", false);
  Quantization read = integers(config, "bits", "group_size", read_symmetric(config, "sym", true));
  allow_exceptions(config, "dynamic", &read.declared);
  read.declared.has_negative_scales = config.raw().contains("autoround_version");
  return read;
}

Quantization read_auto_round(const JsonObject& config) {
  one_of(config, "packing_format", {"auto_round:auto_gptq"});
  Quantization read = integers(config, "bits", "group_size", read_symmetric(config, "sym", true));
  allow_exceptions(config, "extra_config", &read.declared);
  read.declared.has_negative_scales = true;
  return read;
}

// AutoAWQ's own files call the keys w_bit and q_group_size.
Quantization read_awq(const JsonObject& config) {
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  for (const char* key : {"version", "format", "checkpoint_format"}) {
    const std::string found = config.string_or(key, "gemm");
    if (lower(found) == "gemm") continue;
    config.complain(key, "expected gemm, found " + base::printable(found));
  }
  one_of(config, "pack_dtype", {"int32"});
  const char* bits = config.has("w_bit") && !config.has("bits") ? "w_bit" : "bits";
  if (config.integer(bits) != 4) config.complain(bits, "expected 4");
  const bool symmetric = read_symmetric(config, "sym", false);
  const bool has_zeros = read_symmetric(config, "zero_point", !symmetric);
  const char* group = config.has("q_group_size") ? "q_group_size" : "group_size";
  Quantization read = integers(config, bits, group, symmetric || !has_zeros);
  if (!read.declared.symmetric.value_or(false)) read.declared.symmetric = {};
  read.format = WeightFormat::kInt8;
  allow_exceptions(config, "dynamic", &read.declared);
  read.declared.has_negative_scales = config.raw().contains("autoround_version");
  return read;
}

Quantization read_method(const JsonObject& config, const JsonObject& root, QuantizationKeys* keys) {
  const std::string method = config.string_or("quant_method", "(unnamed)");
  if (method == "fp8") return read_fp8(config);
  if (method == "compressed-tensors") return read_compressed_tensors(config, keys);
  if (method == "mxfp4") return {.format = WeightFormat::kMxfp4, .declared = {}};
  if (method.starts_with("modelopt")) {
    if (!config.has("quantization")) return read_modelopt(config);
    const JsonObject inner = config.object("quantization");
    const Quantization read = read_modelopt(inner);
    keys->check(inner, "quantization");
    return read;
  }
  if (method == "gptq") return read_gptq(config);
  if (method == "awq") return read_awq(config);
  if (method == "auto-round") return read_auto_round(config);
  root.complain("quantization_config",
                fmt::format("quant_method {} is not supported; supported: fp8, compressed-tensors, "
                            "modelopt, mxfp4, gptq, awq, auto-round",
                            base::printable(method)));
  return {};
}

void set(Quantization read, ModelConfig* config) {
  config->stored_format = read.format;
  config->declared = std::move(read.declared);
}

}  // namespace

void read_quantization(const JsonObject& root, const std::string& file, ModelConfig* config) {
  if (!root.has("quantization_config")) return;
  const JsonObject quantization = root.object("quantization_config");
  QuantizationKeys keys;
  set(read_method(quantization, root, &keys), config);
  keys.check(quantization, "");
  keys.note(file, config);
}

Status read_quantization_beside(const std::string& model_dir, ModelConfig* config) {
  const auto read = [&](const char* name, auto&& read_object) -> Status {
    const std::string path = std::filesystem::path(model_dir) / name;
    std::error_code absent;
    if (!std::filesystem::exists(path, absent)) return {};
    WIDEEP_TRY_ASSIGN(const JsonDocument document, JsonDocument::read(path));
    QuantizationKeys keys;
    read_object(document.root(), keys);
    keys.note(path, config);
    return document.status();
  };
  WIDEEP_TRY(read("hf_quant_config.json", [&](const JsonObject& root, QuantizationKeys& keys) {
    const JsonObject quantization = root.object("quantization");
    if (quantization.has("quant_algo")) set(read_modelopt(quantization), config);
    keys.check(quantization, "quantization");
  }));
  return read("quantize_config.json", [&](const JsonObject& root, QuantizationKeys& keys) {
    set(read_gptq(root), config);
    keys.check(root, "");
  });
}

}  // namespace wideep::model
