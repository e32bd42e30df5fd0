// SPDX-License-Identifier: Apache-2.0
// A GGUF file, or several, as --model of the commands that take one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"
#include "gguf_model.h"
#include "model/config/config.h"
#include "model/model_files.h"
#include "model/tensor_list.h"
#include "weights/weight_loader.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandGguf : public testing::Test {
 protected:
  std::string model(const GgufModelOptions& options = {}) const {
    const std::string path = scratch_.file("model.gguf");
    EXPECT_TRUE(formats::write_file(path, gguf_model(options).file()).ok());
    return path;
  }
  std::string model_of(uint32_t type, uint32_t type_of_down) const {
    GgufModelOptions options;
    options.type = type;
    options.type_of_down = type_of_down;
    return model(options);
  }
  std::string yaml(const std::string& content) const {
    const std::string path = scratch_.file("parallel.yaml");
    EXPECT_TRUE(formats::write_file(path, content).ok());
    return path;
  }

  const base::ScratchDirectory scratch_;
};

json generated(const std::string& model, std::vector<std::string> more) {
  more.insert(more.end(), {"--json", "--logits-digest"});
  const CommandEnd end = run_command(generate(model, more));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const json answer = json::parse(end.out, nullptr, false);
  return answer.is_object() ? answer.at("results") : json();
}

// ---- layouts ----

TEST_F(CommandGguf, EveryLayoutAnswersAlike) {
  const std::string path = model();
  const json one = generated(path, {"--ranks", "1"});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one, generated(path, {"--ranks", "2"}));
  EXPECT_EQ(one, generated(path, {"--ranks", "4"}));
  const std::string shared =
      "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"
      "enable_attention_dp: true\n";
  for (const std::string& config :
       {shared + "moe_config: {load_balancer: {num_slots: 6}}\n",
        shared + "moe_config: {load_balancer: {num_slots: 6, layer_updates_per_iter: 2}}\n",
        std::string("pipeline_parallel_size: 2\n"), std::string("context_parallel_size: 2\n"),
        std::string("tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n")}) {
    EXPECT_EQ(one, generated(path, {"--config", yaml(config)})) << config;
  }
}

TEST_F(CommandGguf, PartsAnswerAsOneFile) {
  const std::vector<std::string> parts = write_gguf_parts(scratch_.file("parts"), 3);
  const json one = generated(model(), {});
  EXPECT_EQ(one, generated(parts[0], {}));
  EXPECT_EQ(one, generated(parts[2], {"--ranks", "2"}));
}

// Also where down has another type, and so a form of its own.
TEST_F(CommandGguf, PackedWeightsAnswerAsTheFile) {
  for (const uint32_t type_of_down : {kGgmlQ8_0, kGgmlQ4_1}) {
    const std::string path = model_of(kGgmlQ8_0, type_of_down);
    const std::vector<std::string> packed = {"--packed-cache", scratch_.file("packed")};
    const json expected = generated(path, {});
    EXPECT_EQ(expected, generated(path, packed));
    const CommandEnd again = run_command(generate(path, packed));
    EXPECT_EQ(again.exit_code, 0);
    EXPECT_THAT(again.err, Not(HasSubstr("packing the weights")));
    EXPECT_EQ(expected, generated(path, packed));
  }
}

// ---- the server ----

TEST_F(CommandGguf, ServesCompletionsAndChat) {
  const std::string path = model();
  const CommandEnd end = run_command(generate(path, {"--max-tokens", "24", "--json"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const Server server(path, {});
  ASSERT_NE(server.port(), 0);
  const server::Reply completion = server.complete({{"prompt", "The cat"}});
  EXPECT_EQ(json::parse(completion.body).at("choices")[0].at("text"),
            json::parse(end.out).at("results")[0].at("text"));
  const auto post = [&](const char* target, const json& body) {
    const server::Reply reply = server::ask(server.port(), "POST", target, body.dump());
    EXPECT_EQ(reply.status, 200) << target << ": " << reply.body;
    return json::parse(reply.body, nullptr, false);
  };
  const json message = {{"role", "user"}, {"content", "the cat"}};
  const json chat =
      post("/v1/chat/completions", {{"model", "m"}, {"max_tokens", 4}, {"messages", {message}}});
  // "▁the▁cat▁", of which each letter is a token.
  EXPECT_EQ(chat.at("usage").at("prompt_tokens"), 9);
  const json tokens = post("/tokenize", {{"model", "m"}, {"prompt", "a cat"}});
  ASSERT_EQ(tokens.at("tokens").size(), 7u) << tokens;
  const json text = post("/detokenize", {{"model", "m"}, {"tokens", tokens.at("tokens")}});
  EXPECT_THAT(text.at("prompt").get<std::string>(), HasSubstr("a cat"));
}

// ---- what is said of a file ----

TEST_F(CommandGguf, NamesTheFormatsOfTypes) {
  const CommandEnd end = run_command(generate(model_of(kGgmlQ8_0, kGgmlQ4_1)));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr("Q8_0 as int8"), HasSubstr("Q4_1 as int")));
}

std::string fingerprint(const std::string& model) {
  auto config = model::read_model_config(model);
  const auto files = model::ModelFiles::open(model, &config.value());
  return files.ok() ? files->tensors().fingerprint() : files.status().message();
}

// Nodes compare it.
TEST_F(CommandGguf, OtherWeightsHaveAnotherFingerprint) {
  const std::string before = fingerprint(model());
  EXPECT_EQ(fingerprint(model()), before);
  EXPECT_NE(fingerprint(model({.first_weight = 0.2f})), before);
}

TEST_F(CommandGguf, DoctorDescribesIt) {
  const std::string path = model_of(kGgmlQ8_0, kGgmlQ4_1);
  const CommandEnd end = run_command({.arguments = {"doctor", "--model", path}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, AllOf(HasSubstr("GGUF file of llama.cpp's architecture llama, "),
                             HasSubstr("4 experts"), HasSubstr("Q4_1"), HasSubstr("  note "),
                             HasSubstr("it fits")));
  const CommandEnd as_json = run_command({.arguments = {"doctor", "--model", path, "--json"}});
  const json gguf = json::parse(as_json.out, nullptr, false).at("model").at("gguf");
  EXPECT_EQ(gguf.at("architecture"), "llama");
  EXPECT_EQ(gguf.at("files"), 1);
  // Down of two layers: four experts of 64 rows of one block of 20 bytes.
  EXPECT_EQ(gguf.at("bytes_by_type").at("Q4_1"), 2 * 4 * 64 * 20);
}

TEST_F(CommandGguf, DoctorCountsParts) {
  const std::vector<std::string> parts = write_gguf_parts(scratch_.file("parts"), 3);
  const CommandEnd end = run_command({.arguments = {"doctor", "--model", parts[1]}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("3 GGUF files of llama.cpp's architecture llama"));
}

TEST_F(CommandGguf, DoctorMissesATokenizer) {
  GgufModelOptions options;
  options.left_out = {"tokenizer.ggml.tokens", "tokenizer.ggml.scores"};
  const CommandEnd end = run_command({.arguments = {"doctor", "--model", model(options)}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("no tokenizer in its metadata"));
}

// ---- quantize ----

std::string quantized(const std::string& model, const std::string& format,
                      const std::string& output) {
  const CommandEnd end = run_command(
      {.arguments = {"quantize", "--model", model, "--to", format, "--output", output}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  return output;
}

TEST_F(CommandGguf, QuantizeWritesADirectoryThatRuns) {
  const std::string path = model();
  const json from_file = generated(path, {});
  ASSERT_EQ(from_file.size(), 1u);
  for (const std::string format : {"int8", "int4", "fp8", "mxfp4", "nvfp4"}) {
    const std::string out = quantized(path, format, scratch_.file("as_" + format));
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
      EXPECT_TRUE(std::filesystem::exists(out + "/" + name)) << name;
    }
    const json from_directory = generated(out, {});
    ASSERT_EQ(from_directory.size(), 1u) << format;
    EXPECT_EQ(from_file[0].at("num_prompt_tokens"), from_directory[0].at("num_prompt_tokens"));
    EXPECT_EQ(from_directory, generated(out, {"--ranks", "2"})) << format;
  }
}

// Experts that are MXFP4 in the file are the same MXFP4 in the directory; what is not quantised is
// the file's, rounded to bf16.
TEST_F(CommandGguf, QuantizeKeepsValues) {
  const std::string path = model_of(kGgmlMxfp4, kGgmlMxfp4);
  const std::string out = quantized(path, "mxfp4", scratch_.file("out"));
  auto config = model::read_model_config(path);
  ASSERT_TRUE(config.ok()) << config.status().message();
  auto written_config = model::read_model_config(out);
  ASSERT_TRUE(written_config.ok()) << written_config.status().message();
  const auto file = model::ModelFiles::open(path, &*config);
  const auto directory = model::ModelFiles::open(out, &*written_config);
  ASSERT_TRUE(file.ok() && directory.ok()) << directory.status().message();
  int num_experts = 0;
  for (const model::ListedTensor& tensor : model::all_tensors(*config)) {
    const auto stored =
        weights::WeightLoader(file->tensors(), {}).floats(tensor.name, tensor.shape);
    const auto written =
        weights::WeightLoader(directory->tensors(), {}).floats(tensor.name, tensor.shape);
    ASSERT_TRUE(stored.ok() && written.ok()) << tensor.name << written.status().message();
    if (tensor.use == model::TensorUse::kExpert) {
      EXPECT_EQ(*stored, *written) << tensor.name;
      ++num_experts;
    } else if (!model::is_quantizable(tensor.use)) {
      for (size_t i = 0; i < stored->size(); ++i) {
        ASSERT_NEAR((*stored)[i], (*written)[i], std::abs((*stored)[i]) / 256) << tensor.name;
      }
    }
  }
  EXPECT_EQ(num_experts, 2 * 4 * 3);
}

// Also files whose kinds of layers rotate differently, and with layers that predict further tokens.
TEST_F(CommandGguf, QuantizeWritesConfigsThatAreRead) {
  const std::map<std::string, std::string> refused = {
      {"deepseek_v4_fp4", "choose experts by a table of tokens, which is not written"},
      {"phimoe_published", "config.json cannot say both; run the GGUF file as it is"}};
  int num_files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(WIDEEP_SOURCE_DIR "/tests/golden/gguf/models")) {
    const std::string name = file.path().stem();
    const std::string out = scratch_.file(name);
    const CommandEnd end = run_command({.arguments = {"quantize", "--model", file.path(), "--to",
                                                      "int8", "--output", out, "--no-evaluation"}});
    if (const auto why = refused.find(name); why != refused.end()) {
      EXPECT_THAT(end.err, HasSubstr(why->second));
      continue;
    }
    EXPECT_EQ(end.exit_code, 0) << name << ": " << end.err;
    const auto config = model::read_model_config(file.path());
    const auto written = model::read_model_config(out);
    ASSERT_TRUE(config.ok()) << name << ": " << config.status().message();
    ASSERT_TRUE(written.ok()) << name << ": " << written.status().message();
    EXPECT_EQ(config->layers, written->layers) << name;
    EXPECT_EQ(config->rope.theta, written->rope.theta) << name;
    if (!written->rope.divisors.empty()) ++num_files;
  }
  EXPECT_GE(num_files, 2);  // Llama 3 and Step
}

TEST_F(CommandGguf, BenchModelMeasuresIt) {
  const CommandEnd end = run_command(
      {.arguments = {"bench", "model", "--threads", "1", "--model", model(), "--prompt", "24",
                     "--generate", "3", "--batch", "1", "--repeat", "2", "--json"}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << end.out;
  EXPECT_EQ(report.at("tests").size(), 2u);
}

}  // namespace
}  // namespace wideep::tests
