// SPDX-License-Identifier: Apache-2.0
// wideep generate on broken model directories: one line that names the file, and nothing is left
// behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using tensor_files::TensorToWrite;
using Tensors = std::vector<TensorToWrite>;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kDense = "model.layers.0.mlp.up_proj.weight";
constexpr const char* kExpert = "model.layers.2.mlp.experts.13.down_proj.weight";

std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

// Runs the command on the model with 4 ranks.
CommandEnd run_on(const ModelCopy& model) {
  return run_command(generate(model.path(), {"--ranks", "4"}));
}

CommandEnd run_with_weights(const std::string& bytes) {
  const ModelCopy model;
  model.write(kWeights, bytes);
  return run_on(model);
}

CommandEnd run_with_tensors(const std::function<void(Tensors&)>& edit) {
  const ModelCopy model;
  model.edit_tensors(edit);
  return run_on(model);
}

CommandEnd run_with_config(const std::function<void(json&)>& edit) {
  const ModelCopy model;
  model.edit_config(edit);
  return run_on(model);
}

void drop(Tensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const TensorToWrite& tensor) { return tensor.name == name; });
}

TEST(CommandModel, IntactCopyRuns) {
  const CommandEnd end = run_on(ModelCopy());
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_TRUE(end.error_lines().empty()) << end.err;
}

TEST(CommandModel, NoSuchDirectory) {
  expect_refused(run_command(generate("/nonexistent/model")), {"/nonexistent/model"});
  expect_refused(run_command(generate(small_model() + "/config.json")), {"config.json"});
}

TEST(CommandModel, NoWeights) {
  const ModelCopy model;
  model.remove(kWeights);
  expect_refused(run_on(model), {model.path(), "expected model.safetensors", "found neither"});
}

TEST(CommandModel, TruncatedWeights) {
  const std::string whole = ModelCopy().read(kWeights);
  expect_refused(run_with_weights(whole.substr(0, whole.size() - 100)),
                 {kWeights, "tensor '", "expected", "found", "cut short"});
  expect_refused(run_with_weights(whole.substr(0, 2000)), {kWeights, "header", "cut short"});
  expect_refused(run_with_weights(whole.substr(0, 5)), {kWeights, "at least 8 bytes", "found 5"});
  expect_refused(run_with_weights(""), {kWeights, "at least 8 bytes", "found 0"});
}

TEST(CommandModel, HeaderLengthBeyondEverything) {
  const std::string length("\0\0\0\0\0\0\0\x80", 8);  // 2^63
  expect_refused(run_with_weights(length + "{}"),
                 {kWeights, "expected a header of at most", "found", "9223372036854775808"});
}

TEST(CommandModel, HeaderIsNotJson) {
  expect_refused(run_with_weights(safetensors("{\"a\": nonsense}", "")), {kWeights, "header"});
}

TEST(CommandModel, OffsetsOutOfRange) {
  const std::string header = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})";
  expect_refused(run_with_weights(safetensors(header, "12345678")),
                 {kWeights, "tensor 'a'", "data_offsets", "<= 8", "[4, 12]"});
}

TEST(CommandModel, TensorsOverlap) {
  const std::string header = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},)"
                             R"("b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})";
  expect_refused(run_with_weights(safetensors(header, "123456789012")),
                 {kWeights, "tensor 'b'", "overlap", "expected its bytes to begin at 8"});
}

TEST(CommandModel, WrongDtype) {
  const std::string unknown = R"({"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}})";
  expect_refused(run_with_weights(safetensors(unknown, "1234")),
                 {kWeights, "tensor 'a'", "expected a known dtype", "'F33'"});
  for (const char* name : {kDense, kExpert}) {
    const auto end = run_with_tensors(
        [&](Tensors& tensors) { tensor_named(tensors, name).dtype = Dtype::kI16; });
    expect_error(end, 2, {kWeights, name, "expected dtype F32, BF16 or F16", "found I16"});
  }
}

TEST(CommandModel, WrongShape) {
  const auto swap_dimensions = [](const std::string& name) {
    return run_with_tensors([&](Tensors& tensors) {
      auto& shape = tensor_named(tensors, name).shape;
      std::swap(shape[0], shape[1]);
    });
  };
  expect_error(swap_dimensions(kDense), 2,
               {kWeights, kDense, "expected shape [96, 64]", "found [64, 96]"});
  expect_error(swap_dimensions(kExpert), 2,
               {kWeights, kExpert, "expected shape [64, 48]", "found [48, 64]"});
}

TEST(CommandModel, MissingTensor) {
  for (const char* name : {kDense, kExpert}) {
    const auto end = run_with_tensors([&](Tensors& tensors) { drop(tensors, name); });
    expect_error(end, 2, {name, "is not among the", "tensors of the checkpoint"});
  }
}

TEST(CommandModel, IndexNamesAbsentShard) {
  const ModelCopy model;
  std::filesystem::rename(model.file(kWeights), model.file("model-00001-of-00002.safetensors"));
  model.write("model.safetensors.index.json",
              R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors",)"
              R"( "lm_head.weight": "model-00002-of-00002.safetensors"}})");
  expect_refused(run_on(model),
                 {"model.safetensors.index.json", "model-00002-of-00002.safetensors"});
}

TEST(CommandModel, IndexNamesAbsentTensor) {
  const ModelCopy model;
  std::filesystem::rename(model.file(kWeights), model.file("model-00001-of-00001.safetensors"));
  model.write("model.safetensors.index.json",
              R"({"weight_map": {"absent.weight": "model-00001-of-00001.safetensors"}})");
  expect_refused(run_on(model), {"model.safetensors.index.json", "'absent.weight'",
                                 "model-00001-of-00001.safetensors"});
}

TEST(CommandModel, ConfigMissingOrNotJson) {
  const ModelCopy model;
  model.write("config.json", "{\"hidden_size\": 64,\n oops}");
  expect_refused(run_on(model), {"config.json:2:"});
  model.write("config.json", "[1, 2]");
  expect_refused(run_on(model), {"config.json", "expected an object"});
  model.remove("config.json");
  expect_refused(run_on(model), {model.file("config.json"), "No such file"});
}

TEST(CommandModel, PathsThatNameNoModel) {
  const base::ScratchDirectory scratch;
  const ModelCopy model;
  struct Case {
    std::string path;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"some-org/some-model", {"hf download some-org/some-model --local-dir some-model"}},
      {scratch.path(), {scratch.path() + ": an empty directory"}},
      {model.file("model.safetensors"), {"weights alone", model.path()}},
      {scratch.path() + "/none", {"No such file or directory"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    expect_refused(run_command({.arguments = {"serve", c.path, "--port", "0"}}), c.parts);
    expect_refused(run_command({.arguments = {"generate", c.path, "--prompt", "x"}}), c.parts);
    expect_refused(run_command({.arguments = {"generate", c.path, "--chat", "--prompt", "x"}}),
                   c.parts);
  }
}

TEST(CommandModel, ImpossibleConfig) {
  struct Case {
    const char* key;
    json value;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"num_experts_per_tok", 17, {"expected at most 8", "found 17"}},
      {"hidden_size", 0, {"found 0"}},
      {"hidden_size", "wide", {"'wide'"}},
      {"num_hidden_layers", -3, {"found -3"}},
      {"n_routed_experts", 1e300, {}},
      {"n_group", 3, {"expected a divisor of n_routed_experts 16", "found 3"}},
      {"topk_group", 5, {"expected at most n_group 4", "found 5"}},
      {"qk_rope_head_dim", 7, {"expected an even size", "found 7"}},
      {"first_k_dense_replace", -1, {"found -1"}},
      {"qk_head_dim", 99, {"expected qk_nope_head_dim + qk_rope_head_dim", "found 99"}},
      {"rms_norm_eps", 0, {"found 0"}},
      {"vocab_size", nullptr, {}},
      {"hidden_act", "gelu", {"expected silu", "found gelu"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{}: {}", c.key, c.value.dump()));
    std::vector<std::string> parts = c.parts;
    parts.insert(parts.end(), {"config.json", c.key});
    expect_refused(run_with_config([&](json& config) { config[c.key] = c.value; }), parts);
  }
}

// What the files say and the run does not use is named, and the run goes on.
TEST(CommandModel, UnusedSettingsAreNamed) {
  const auto end = run_with_config([](json& config) {
    config["eos_token_id"] = 264;
    config["swiglu_limit"] = 7;
  });
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, testing::HasSubstr("config.json: eos_token_id: 264 is not a token"));
  EXPECT_THAT(end.err, testing::HasSubstr("config.json: unknown key without effect: swiglu_limit"));
}

TEST(CommandModel, UnsupportedArchitecture) {
  const auto end =
      run_with_config([](json& config) { config["architectures"] = {"FalconForCausalLM"}; });
  expect_refused(end, {"config.json", "architectures", "FalconForCausalLM is not supported",
                       "deepseek_v3", "DeepseekV3ForCausalLM"});
}

TEST(CommandModel, QuantizedCheckpoint) {
  const auto end = run_with_config(
      [](json& config) { config["quantization_config"] = {{"quant_method", "bitsandbytes"}}; });
  expect_refused(end, {"config.json", "quantization_config", "bitsandbytes", "modelopt"});
}

TEST(CommandModel, TokenizerMissingOrBroken) {
  const ModelCopy model;
  model.write("tokenizer.json", "{\"model\": ");
  expect_refused(run_on(model), {"tokenizer.json:1:"});
  model.write("tokenizer.json", R"({"version": "1.0", "model": {"type": "Telepathy"}})");
  expect_refused(run_on(model), {"tokenizer.json", "model.type", "Telepathy", "BPE"});
  model.remove("tokenizer.json");
  expect_refused(run_on(model), {model.file("tokenizer.json"), "No such file"});
}

TEST(CommandModel, TokenizerLargerThanVocabulary) {
  const auto end = run_with_config([](json& config) { config["vocab_size"] = 200; });
  expect_refused(end, {"tokenizer", "256", "vocab_size is 200"});
}

}  // namespace
}  // namespace wideep::tests
