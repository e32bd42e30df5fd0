// SPDX-License-Identifier: Apache-2.0
// A GGUF file, or several, as --model of the commands that take one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"
#include "formats/gguf_testing.h"

namespace wideep::tests {
namespace {

using formats::GgufBuilder;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kQ8_0 = 8, kQ4_1 = 3;
constexpr int kHidden = 64, kIntermediate = 32, kExperts = 4, kKvWidth = 32, kLayers = 2;

// A Mixtral of random weights with a token for each byte and each letter.
class Made {
 public:
  explicit Made(uint32_t type_of_down) {
    metadata();
    tokenizer();
    tensors(type_of_down);
  }
  std::string file() const { return builder_.file(); }

 private:
  void metadata() {
    builder_.string("general.architecture", "llama")
        .integer("llama.block_count", kLayers)
        .integer("llama.context_length", 256)
        .integer("llama.embedding_length", kHidden)
        .integer("llama.feed_forward_length", kIntermediate)
        .integer("llama.attention.head_count", 4)
        .integer("llama.attention.head_count_kv", 2)
        .number("llama.rope.freq_base", 1e4f)
        .number("llama.attention.layer_norm_rms_epsilon", 1e-5f)
        .integer("llama.expert_count", kExperts)
        .integer("llama.expert_used_count", 2);
  }

  void add_token(const std::string& token, float score, int32_t type) {
    tokens_.push_back(token);
    scores_.push_back(score);
    types_.push_back(type);
  }

  void tokenizer() {
    constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;
    add_token("<unk>", 0.0f, kUnknown);
    add_token("<s>", 0.0f, kControl);
    add_token("</s>", 0.0f, kControl);
    for (int byte = 0; byte < 256; ++byte) add_token(fmt::format("<0x{:02X}>", byte), 0.0f, kByte);
    add_token("\u2581", -1.0f, kNormal);
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      add_token(std::string(1, letter), -2.0f, kNormal);
    }
    builder_.string("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", tokens_)
        .list("tokenizer.ggml.scores", GgufBuilder::Type::kF32, scores_)
        .list("tokenizer.ggml.token_type", GgufBuilder::Type::kI32, types_)
        .integer("tokenizer.ggml.bos_token_id", 1)
        .integer("tokenizer.ggml.eos_token_id", 2)
        .integer("tokenizer.ggml.unknown_token_id", 0)
        .string("tokenizer.chat_template",
                "{% for message in messages %}{{ message['content'] }} {% endfor %}");
  }

  void floats(const std::string& name, const std::vector<uint64_t>& shape, bool norm = false) {
    size_t count = 1;
    for (const uint64_t size : shape) count *= size;
    std::vector<float> values(count);
    std::normal_distribution<float> normal(norm ? 1.0f : 0.0f, norm ? 0.1f : 0.15f);
    for (float& value : values) value = normal(random_);
    builder_.floats(name, shape, values);
  }

  // Blocks of 32: a scale, for Q4_1 a minimum, and codes.
  void blocks(const std::string& name, uint32_t type, const std::vector<uint64_t>& shape) {
    size_t count = 1;
    for (const uint64_t size : shape) count *= size;
    std::string bytes;
    for (size_t block = 0; block < count / 32; ++block) {
      bytes += type == kQ8_0 ? std::string("\x40\x14", 2) : std::string("\x40\x20\x40\xA8", 4);
      for (int i = 0; i < (type == kQ8_0 ? 32 : 16); ++i) bytes += static_cast<char>(random_());
    }
    builder_.tensor(name, type, shape, bytes);
  }

  void tensors(uint32_t type_of_down) {
    floats("token_embd.weight", {tokens_.size(), kHidden});
    floats("output.weight", {tokens_.size(), kHidden});
    floats("output_norm.weight", {kHidden}, true);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string block = fmt::format("blk.{}.", layer);
      floats(block + "attn_norm.weight", {kHidden}, true);
      floats(block + "ffn_norm.weight", {kHidden}, true);
      floats(block + "attn_q.weight", {kHidden, kHidden});
      floats(block + "attn_k.weight", {kKvWidth, kHidden});
      floats(block + "attn_v.weight", {kKvWidth, kHidden});
      floats(block + "attn_output.weight", {kHidden, kHidden});
      floats(block + "ffn_gate_inp.weight", {kExperts, kHidden});
      blocks(block + "ffn_gate_exps.weight", kQ8_0, {kExperts, kIntermediate, kHidden});
      blocks(block + "ffn_up_exps.weight", kQ8_0, {kExperts, kIntermediate, kHidden});
      blocks(block + "ffn_down_exps.weight", type_of_down, {kExperts, kHidden, kIntermediate});
    }
  }

  GgufBuilder builder_;
  std::vector<std::string> tokens_;
  std::vector<float> scores_;
  std::vector<int32_t> types_;
  std::minstd_rand random_{1};
};

class CommandGguf : public testing::Test {
 protected:
  std::string model(uint32_t type_of_down = kQ8_0) const {
    const std::string path = scratch_.file("model.gguf");
    EXPECT_TRUE(formats::write_file(path, Made(type_of_down).file()).ok());
    return path;
  }

  const base::ScratchDirectory scratch_;
};

json generated(const std::string& model, std::vector<std::string> more) {
  more.insert(more.end(), {"--json", "--logits-digest"});
  const CommandEnd end = run_command(generate(model, more));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  return json::parse(end.out, nullptr, false);
}

TEST_F(CommandGguf, OneAndTwoRanksAnswerAlike) {
  const std::string path = model();
  const json one = generated(path, {"--ranks", "1"}), two = generated(path, {"--ranks", "2"});
  ASSERT_TRUE(one.is_object() && two.is_object());
  EXPECT_EQ(one.at("results"), two.at("results"));
  EXPECT_EQ(one.at("results").size(), 1u);
}

TEST_F(CommandGguf, ServesCompletionsAndChat) {
  const std::string path = model();
  const CommandEnd end = run_command(generate(path, {"--max-tokens", "24", "--json"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const Server server(path, {});
  ASSERT_NE(server.port(), 0);
  const server::Reply completion = server.complete({{"prompt", "The cat"}});
  EXPECT_EQ(json::parse(completion.body).at("choices")[0].at("text"),
            json::parse(end.out).at("results")[0].at("text"));
  const server::Reply chat = server::ask(
      server.port(), "POST", "/v1/chat/completions",
      R"({"model":"m","max_tokens":4,"messages":[{"role":"user","content":"the cat"}]})");
  EXPECT_EQ(chat.status, 200) << chat.body;
}

TEST_F(CommandGguf, NamesWhatIsQuantisedAgain) {
  const CommandEnd end = run_command(generate(model(kQ4_1)));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr("Q4_1"), HasSubstr("int8"), HasSubstr("dB")));
}

TEST_F(CommandGguf, DoctorDescribesIt) {
  const CommandEnd end = run_command({.arguments = {"doctor", "--model", model()}});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("4 experts"));
}

TEST_F(CommandGguf, QuantizeWritesADirectoryThatRuns) {
  const std::string out = scratch_.file("out"), path = model();
  const CommandEnd end =
      run_command({.arguments = {"quantize", "--model", path, "--to", "int8", "--output", out}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors.index.json"}) {
    EXPECT_TRUE(std::filesystem::exists(out + "/" + name)) << name;
  }
  const json from_file = generated(path, {}), from_directory = generated(out, {});
  ASSERT_TRUE(from_file.is_object() && from_directory.is_object());
  EXPECT_EQ(from_file.at("results")[0].at("prompt_tokens"),
            from_directory.at("results")[0].at("prompt_tokens"));
}

TEST_F(CommandGguf, BenchModelMeasuresIt) {
  const CommandEnd end = run_command(
      {.arguments = {"bench", "model", "--threads", "1", "--model", model(), "--prompt", "24",
                     "--generate", "3", "--batch", "1", "--repeat", "2", "--json"}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(json::parse(end.out).at("tests").size(), 2u);
}

TEST_F(CommandGguf, OneLineForWhatIsNoModel) {
  const std::string whole = Made(kQ8_0).file(), path = scratch_.file("bad.gguf");
  for (const size_t size : {size_t{3}, size_t{20}, whole.size() / 2}) {
    ASSERT_TRUE(formats::write_file(path, whole.substr(0, size)).ok());
    const CommandEnd end = run_command(generate(path));
    EXPECT_EQ(end.exit_code, 2) << end.err;
    EXPECT_EQ(end.error_lines().size(), 1u) << end.err;
  }
}

}  // namespace
}  // namespace wideep::tests
