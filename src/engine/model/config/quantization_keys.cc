// SPDX-License-Identifier: Apache-2.0
//
// The keys of quantization_config that are known to change nothing that wideep computes: how codes
// were found, which modules have none (the tensors show it), how activations would be quantised
// (they never are as a file says), and how other programs run them. Written by compressed-tensors,
// GPTQModel, AutoGPTQ, AutoAWQ, AutoRound, ModelOpt, LLM Compressor and transformers.
#include "model/config/quantization_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/printable.h"
#include "model/config/config_fields.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

constexpr std::string_view kHarmlessOfQuantization[] = {
    // which modules
    "block_name_to_quantize",
    "exclude_modules",
    "expert_dtype",
    "ignore",
    "ignored_layers",
    "lm_head",
    "llm_int8_skip_modules",
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "modules_to_not_convert",
    "packed_modules_mapping",
    "quant_block_list",
    "quantized_layers",
    "quantize_lm_head",
    "targets",
    "to_quant_block_names",
    // who wrote it
    "autoround_version",
    "meta",
    "producer",
    "provider",
    "quant_method",
    "quantization_status",
    "quantizer",
    "version",
    // how codes were found
    "act_group_aware",
    "amp",
    "batch_size",
    "cache_block_outputs",
    "calibration_dataset",
    "calibration_info",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "desc_act",
    "device",
    "enable_alg_ext",
    "enable_minmax_tuning",
    "enable_norm_bias_tuning",
    "enable_quanted_input",
    "fail_safe",
    "failsafe",
    "gptaq",
    "gptaq_alpha",
    "gradient_accumulate_steps",
    "hyb_act",
    "iters",
    "low_cpu_mem_usage",
    "low_gpu_mem_usage",
    "lr",
    "lr_scheduler",
    "minmax_lr",
    "model_seqlen",
    "mse",
    "not_use_best_mse",
    "nblocks",
    "nsamples",
    "observer",
    "observer_kwargs",
    "offload_to_disk",
    "pad_token_id",
    "sampler",
    "scale_dtype",
    "seqlen",
    "seqlens",
    "static_groups",
    "tokenizer",
    "train_bs",
    "true_sequential",
    "tuning_config",
    "zp_dtype",
    // activations and the cache
    "act_bits",
    "act_data_type",
    "act_dynamic",
    "act_group_size",
    "act_sym",
    "activation_scheme",
    "dynamic_activation",
    "input_activations",
    "kv_cache_dtype",
    "kv_cache_quant_algo",
    "kv_cache_scheme",
    "output_activations",
    "static_attention_dtype",
    "static_kv_dtype",
    // how a program runs it
    "backend",
    "dequantize",
    "disable_exllama",
    "do_fuse",
    "exllama_config",
    "fuse_max_seq_len",
    "is_checkpoint_fp8_serialized",
    "linear_scheme",
    "max_input_length",
    "model_file_base_name",
    "model_name_or_path",
    "modules_to_fuse",
    "parallel_packing",
    "run_compressed",
    "use_cuda_fp16",
    "use_exllama",
    "use_exllama_v2",
    "use_fused_kernels",
    "vram_strategy",
    // totals
    "compression_ratio",
    "global_compression_ratio",
    "targets_info",
    // of compressed-tensors' weights
    "actorder",
    "dynamic",
    // of AutoRound's
    "data_type",
    "super_bits",
    "super_group_size",
    "supported_types",
    // of AWQ's
    "enable_mse_search",
    "n_grid",
    "need_zero_point",
    "q_layers",
};

}  // namespace

bool is_weight_transform(std::string_view key) {
  constexpr std::string_view kWords[] = {"transform", "hadamard", "rotat", "quarot", "spinquant"};
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return key.find(word) != std::string_view::npos; });
}

bool says_nothing(const nlohmann::json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() &&
         std::all_of(value.begin(), value.end(),
                     [](const nlohmann::json& each) { return says_nothing(each); });
}

void QuantizationKeys::check(const JsonObject& object, const std::string& path) {
  for (const std::string& key : object.unasked_keys()) {
    if (std::ranges::find(kHarmlessOfQuantization, key) != std::end(kHarmlessOfQuantization)) {
      continue;
    }
    const std::string name = path.empty() ? key : path + "." + key;
    if (!is_weight_transform(key) && key != "adapter") {
      unknown_.push_back(base::printable(name));
    } else if (!says_nothing(object.raw().at(key))) {
      object.complain(key,
                      "expected none: its weights mean something only beside another computation "
                      "(rotated inputs, an adapter), which wideep does not do; take files without "
                      "it");
    }
  }
}

void QuantizationKeys::note(const std::string& file, ModelConfig* config) const {
  if (unknown_.empty()) return;
  config->notes.push_back(fmt::format("{}: quantization_config: unknown key{} without effect: {}",
                                      file, unknown_.size() == 1 ? "" : "s",
                                      fmt::join(unknown_, ", ")));
}

}  // namespace wideep::model
