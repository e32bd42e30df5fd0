// SPDX-License-Identifier: Apache-2.0
//
// quantization_config as published files have it, and with keys that change what tensors mean.
#include "model/config/quantization_keys.h"

#include <gmock/gmock.h>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "model/config/config_fields.h"
#include "model/config/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

json with(const json& quantization) {
  json config = golden_json("qwen3_gqa");
  config["quantization_config"] = quantization;
  return config;
}

// As the programs write it, with all keys that they have.
json compressed_tensors() {
  return json::parse(R"({
    "config_groups": {"group_0": {
      "format": "pack-quantized", "input_activations": null, "output_activations": null,
      "targets": ["Linear"],
      "weights": {"actorder": "static", "block_structure": null, "dynamic": false,
                  "group_size": 32, "num_bits": 4, "observer": "minmax", "observer_kwargs": {},
                  "scale_dtype": null, "strategy": "group", "symmetric": true, "type": "int",
                  "zp_dtype": null}}},
    "format": "pack-quantized", "global_compression_ratio": null, "ignore": ["lm_head"],
    "kv_cache_scheme": null, "quant_method": "compressed-tensors",
    "quantization_status": "compressed", "sparsity_config": {}, "transform_config": {},
    "version": "0.12.3.a20251114"})");
}

json gptqmodel() {
  return json::parse(R"({
    "bits": 4, "checkpoint_format": "gptq", "desc_act": false, "dynamic": null, "group_size": 128,
    "lm_head": false, "meta": {"act_group_aware": true, "damp_auto_increment": 0.01,
                               "damp_percent": 0.05, "mse": 0.0, "quantizer": ["gptqmodel:5.0"],
                               "static_groups": false, "true_sequential": true, "uri": "u"},
    "pack_dtype": "int32", "quant_method": "gptq", "sym": true, "adapter": null,
    "format": "gptq", "rotation": null})");
}

json auto_gptq() {
  return json::parse(R"({
    "batch_size": 1, "bits": 8, "block_name_to_quantize": null, "cache_block_outputs": true,
    "damp_percent": 0.1, "dataset": null, "desc_act": false, "exllama_config": {"version": 1},
    "group_size": -1, "max_input_length": null, "model_seqlen": null,
    "module_name_preceding_first_block": null, "modules_in_block_to_quantize": null,
    "pad_token_id": null, "quant_method": "gptq", "sym": true, "tokenizer": null,
    "true_sequential": true, "use_cuda_fp16": false, "use_exllama": true, "backend": "auto",
    "model_file_base_name": "model", "model_name_or_path": null, "is_marlin_format": false,
    "static_groups": false})");
}

json auto_round() {
  return json::parse(R"({
    "bits": 4, "act_bits": 16, "data_type": "int", "group_size": 128, "sym": true, "batch_size": 8,
    "iters": 200, "nsamples": 512, "autoround_version": "0.9.0", "quant_method": "auto-round",
    "block_name_to_quantize": "model.layers", "packing_format": "auto_round:auto_gptq",
    "amp": true, "low_gpu_mem_usage": true, "enable_quanted_input": true, "seqlen": 2048,
    "gradient_accumulate_steps": 1, "lr": 0.005, "minmax_lr": 0.005, "dataset": "d",
    "enable_minmax_tuning": true, "enable_norm_bias_tuning": false, "scale_dtype": "torch.float16",
    "extra_config": {"model.layers.0.mlp.gate": {"bits": 16}}, "hadamard_config": null})");
}

json auto_awq() {
  return json::parse(R"({
    "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"], "quant_method": "awq",
    "version": "gemm", "zero_point": true, "backend": "autoawq", "do_fuse": false,
    "exllama_config": null, "fuse_max_seq_len": null, "modules_to_fuse": null})");
}

json fine_grained_fp8() {
  return json::parse(R"({
    "activation_scheme": "dynamic", "dequantize": false, "fmt": "e4m3",
    "modules_to_not_convert": ["lm_head"], "quant_method": "fp8", "scale_fmt": "ue8m0",
    "weight_block_size": [128, 128]})");
}

json modelopt() {
  return json::parse(R"({
    "config_groups": {"group_0": {"input_activations": {"dynamic": false, "num_bits": 4},
                                  "targets": ["Linear"]}},
    "ignore": ["lm_head"], "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt", "version": "0.35"}, "quant_algo": "NVFP4",
    "quant_method": "modelopt", "group_size": 16})");
}

TEST(QuantizationKeys, PublishedOnesAreAcceptedWithoutAWord) {
  for (const json& each :
       {compressed_tensors(), gptqmodel(), auto_gptq(), auto_round(), auto_awq(),
        fine_grained_fp8(), modelopt(),
        json{{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}}}) {
    const auto config = parse(with(each));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_THAT(config->notes, IsEmpty()) << each;
  }
}

TEST(QuantizationKeys, SayWhatHoldsForAllMatrices) {
  const auto declared = [](const json& each) { return parse(with(each))->declared; };
  EXPECT_EQ(declared(compressed_tensors()).bits, 4);
  EXPECT_EQ(declared(compressed_tensors()).group, 32);
  EXPECT_EQ(declared(gptqmodel()).symmetric, true);
  EXPECT_FALSE(declared(gptqmodel()).has_negative_scales);
  EXPECT_EQ(declared(auto_gptq()).group, -1);
  EXPECT_TRUE(declared(auto_round()).has_negative_scales);
  EXPECT_EQ(declared(fine_grained_fp8()).block_rows, 128);
  EXPECT_EQ(declared(auto_awq()).symmetric, std::nullopt) << "zero points as they are stored";
  // Some modules have settings of their own.
  EXPECT_EQ(declared(auto_round()).bits, 0);
  EXPECT_EQ(declared(auto_round()).symmetric, true);
  json dynamic = gptqmodel();
  dynamic["dynamic"] = {{"+:.*down_proj", {{"bits", 8}, {"sym", false}}}};
  EXPECT_EQ(declared(dynamic).bits, 0);
  EXPECT_EQ(declared(dynamic).group, std::nullopt);
  EXPECT_EQ(declared(dynamic).symmetric, std::nullopt);
  json groups = compressed_tensors();
  groups["config_groups"]["group_1"] = groups["config_groups"]["group_0"];
  groups["config_groups"]["group_1"]["weights"]["num_bits"] = 8;
  EXPECT_EQ(declared(groups).bits, 0);
  EXPECT_EQ(declared(groups).group, 32);
}

// Weights that were rotated mean something only beside inputs that are, too.
TEST(QuantizationKeys, TransformsAreRefusedByName) {
  const json transform = {
      {"config_groups",
       {{"R4",
         {{"type", "hadamard"},
          {"apply", {{{"targets", {"re:.*down_proj$"}}, {"location", "input"}}}}}}}}};
  const auto check = [](json quantization, const json::json_pointer& where, const json& value,
                        const std::string& name) {
    quantization[where] = value;
    EXPECT_THAT(complaint(with(quantization)),
                HasSubstr("config.json: quantization_config." + name +
                          ": expected none: its "
                          "weights mean something only beside another computation"));
  };
  using json_pointer = json::json_pointer;
  check(compressed_tensors(), json_pointer("/transform_config"), transform, "transform_config");
  check(auto_round(), json_pointer("/hadamard_config"), {{"hadamard_type", "hadamard"}},
        "hadamard_config");
  check(auto_round(), json_pointer("/rotation_config"), {{"block_size", 32}}, "rotation_config");
  check(gptqmodel(), json_pointer("/rotation"), "hadamard", "rotation");
  check(gptqmodel(), json_pointer("/adapter"), {{"path", "x"}, {"rank", 32}}, "adapter");
  check(fine_grained_fp8(), json_pointer("/online_hadamard"), true, "online_hadamard");
  check(auto_awq(), json_pointer("/spinquant_config"), {1}, "spinquant_config");
  check(compressed_tensors(), json_pointer("/config_groups/group_0/weights/rotation"), "R1",
        "config_groups.group_0.weights.rotation");
  check(modelopt(), json_pointer("/quarot"), true, "quarot");
}

TEST(QuantizationKeys, TransformsThatDoNothingAreNone) {
  json quantization = compressed_tensors();
  for (const json& nothing : {json(nullptr), json::object(), json(false), json(""),
                              json{{"config_groups", json::object()}}}) {
    quantization["transform_config"] = nothing;
    EXPECT_EQ(complaint(with(quantization)), "") << nothing;
  }
}

TEST(QuantizationKeys, OthersAreNamedInOneLine) {
  json quantization = compressed_tensors();
  quantization["frobnicate"] = 1;
  quantization["config_groups"]["group_0"]["weights"]["zero_bias"] = true;
  const auto config = parse(with(quantization));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->notes,
              testing::ElementsAre("config.json: quantization_config: unknown keys without effect: "
                                   "config_groups.group_0.weights.zero_bias, frobnicate"));
}

TEST(QuantizationKeys, WhatChangesTheMeaningOfTensorsIsRefused) {
  const auto refusal = [](json quantization, const char* key, const json& value) {
    quantization[key] = value;
    return complaint(with(quantization));
  };
  EXPECT_THAT(refusal(gptqmodel(), "pack_dtype", "int16"), HasSubstr("pack_dtype: expected int32"));
  EXPECT_THAT(refusal(gptqmodel(), "format", "marlin"), HasSubstr("format: expected gptq"));
  EXPECT_THAT(refusal(gptqmodel(), "sym", nullptr), HasSubstr("sym: expected true or false"));
  EXPECT_THAT(refusal(auto_gptq(), "is_marlin_format", true), HasSubstr("is_marlin_format"));
  EXPECT_THAT(refusal(modelopt(), "pre_quant_scale", true), HasSubstr("pre_quant_scale: expected"));
  EXPECT_THAT(refusal(auto_awq(), "format", "gemv_fast"), HasSubstr("format: expected gemm"));
}

TEST(QuantizationKeys, TwoThatContradictEachOtherAreRefused) {
  const json text = small_json("qwen3_5_moe_text");
  json config = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}}, {"text_config", text}};
  config["quantization_config"] = fine_grained_fp8();
  EXPECT_EQ(complaint(config), "");
  config["text_config"]["quantization_config"] = fine_grained_fp8();
  EXPECT_EQ(complaint(config), "");
  config["text_config"]["quantization_config"]["weight_block_size"] = {64, 64};
  EXPECT_EQ(complaint(config),
            "config.json: quantization_config: contradicts text_config's; give one of them");
}

TEST(QuantizationKeys, OfAutoGptqsOwnFile) {
  const base::ScratchDirectory scratch;
  const auto write = [&](const char* file, const json& value) {
    ASSERT_TRUE(formats::write_file(scratch.file(file), value.dump()).ok());
  };
  write("config.json", golden_json("qwen3_gqa"));
  json quantization = {{"bits", 4}, {"group_size", 64}, {"sym", true}, {"desc_act", false}};
  write("quantize_config.json", quantization);
  const auto config = read_model_config(scratch.path());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->stored_format, kernels::WeightFormat::kInt4);
  EXPECT_EQ(config->declared.symmetric, true);
  quantization["rotation"] = "random";
  write("quantize_config.json", quantization);
  EXPECT_THAT(read_model_config(scratch.path()).status().message(),
              HasSubstr("quantize_config.json: rotation: expected none"));
}

}  // namespace
}  // namespace wideep::model
