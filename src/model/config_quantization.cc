// SPDX-License-Identifier: Apache-2.0
//
// Reads the storage format of weights from quantization_config, in the forms of DeepSeek,
// compressed-tensors and ModelOpt. The layouts are in weights/stored_matrix.h.
#include <fmt/format.h>

#include "base/printable.h"
#include "model/config_fields.h"

namespace wideep::model {
namespace {

using formats::JsonObject;
using kernels::WeightFormat;

WeightFormat read_fp8(const JsonObject& config) {
  require_word(config, "fmt", "e4m3");
  const std::vector<int64_t> block = config.integers_or("weight_block_size", {});
  if (block != std::vector<int64_t>{128, 128}) {
    config.complain("weight_block_size", "expected [128, 128]; wideep reads no other fp8 weights");
  }
  return WeightFormat::kFp8;
}

// All groups must have the same layout.
WeightFormat read_packed_integers(const JsonObject& config) {
  const JsonObject groups = config.object("config_groups");
  int64_t bits = 4;
  for (const std::string& name : groups.keys()) {
    const JsonObject weights = groups.object(name).object("weights");
    bits = weights.integer("num_bits");
    if (bits != 4 && bits != 8) {
      weights.complain("num_bits", fmt::format("expected 4 or 8, found {}", bits));
    }
    require_word(weights, "type", "int");
    require_flag(weights, "symmetric", true);
  }
  return bits == 8 ? WeightFormat::kInt8 : WeightFormat::kInt4;
}

WeightFormat read_compressed_tensors(const JsonObject& config) {
  const std::string layout = config.string_or("format", "(none)");
  if (layout == "pack-quantized") return read_packed_integers(config);
  if (layout == "mxfp4-pack-quantized") return WeightFormat::kMxfp4;
  config.complain("format", fmt::format("expected pack-quantized or mxfp4-pack-quantized, found {}",
                                        base::printable(layout)));
  return WeightFormat::kBf16;
}

}  // namespace

WeightFormat read_quantization(const JsonObject& root) {
  if (!root.has("quantization_config")) return WeightFormat::kBf16;
  const JsonObject config = root.object("quantization_config");
  const std::string method = config.string_or("quant_method", "(unnamed)");
  if (method == "fp8") return read_fp8(config);
  if (method == "compressed-tensors") return read_compressed_tensors(config);
  if (method == "mxfp4") return WeightFormat::kMxfp4;
  if (method == "modelopt") {
    require_word(config, "quant_algo", "NVFP4");
    return WeightFormat::kNvfp4;
  }
  root.complain("quantization_config",
                fmt::format("quant_method {} is not supported; supported: fp8, compressed-tensors, "
                            "modelopt, mxfp4",
                            base::printable(method)));
  return WeightFormat::kBf16;
}

}  // namespace wideep::model
