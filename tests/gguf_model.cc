// SPDX-License-Identifier: Apache-2.0
//
// Keys and tensors are looked up in the options as they are written, so that a test can leave out
// or change a single one. Blocks have a fixed small scale and random codes: any code is a finite
// weight then, in each of the types. Parts get the tensors in turn, so that no layer is in one file
// alone.
#include "gguf_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "formats/files.h"

namespace wideep::tests {
namespace {

using tensor_files::GgufBuilder;

constexpr int kHidden = 64, kIntermediate = 32, kExperts = 4, kKvWidth = 32, kLayers = 2;

class Maker {
 public:
  explicit Maker(const GgufModelOptions& options) : options_(options) {}

  // Tensors go to the file that `file_of` says, by their number.
  std::vector<GgufBuilder> make(int num_files) {
    files_.resize(static_cast<size_t>(num_files));
    metadata();
    tokenizer();
    tensors();
    if (options_.more) options_.more(files_.front());
    return files_;
  }

  int num_tensors() const { return num_tensors_; }

 private:
  GgufBuilder& first() { return files_.front(); }
  bool is_left_out(const std::string& name) const { return options_.left_out.contains(name); }

  void integer(const std::string& key, uint32_t value) {
    const auto other = options_.integers.find(key);
    if (!is_left_out(key))
      first().integer(key, other == options_.integers.end() ? value : other->second);
  }
  void number(const std::string& key, float value) {
    if (!is_left_out(key)) first().number(key, value);
  }

  void metadata() {
    if (!is_left_out("general.architecture")) {
      first().string("general.architecture", options_.architecture);
    }
    integer("llama.block_count", kLayers);
    integer("llama.context_length", 256);
    integer("llama.embedding_length", kHidden);
    integer("llama.feed_forward_length", kIntermediate);
    integer("llama.attention.head_count", 4);
    integer("llama.attention.head_count_kv", 2);
    number("llama.rope.freq_base", 1e4f);
    number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    integer("llama.expert_count", kExperts);
    integer("llama.expert_used_count", 2);
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
      add_token(std::string(1, letter), letter == 'a' ? options_.score_of_a : -2.0f, kNormal);
    }
    num_rows_ = tokens_.size();
    for (int i = 0; i < options_.more_tokens; ++i) {
      add_token(fmt::format("more{}", i), -3.0f, kNormal);
    }
    if (!is_left_out("tokenizer.ggml.tokens")) {
      first()
          .string("tokenizer.ggml.model", "llama")
          .texts("tokenizer.ggml.tokens", tokens_)
          .list("tokenizer.ggml.token_type", GgufBuilder::Type::kI32, types_);
    }
    if (!is_left_out("tokenizer.ggml.scores")) {
      first().list("tokenizer.ggml.scores", GgufBuilder::Type::kF32, scores_);
    }
    integer("tokenizer.ggml.bos_token_id", 1);
    integer("tokenizer.ggml.eos_token_id", 2);
    integer("tokenizer.ggml.unknown_token_id", 0);
    if (!is_left_out("tokenizer.chat_template")) {
      first().string("tokenizer.chat_template", options_.chat_template);
    }
  }

  static size_t count_of(const std::vector<uint64_t>& shape) {
    size_t count = 1;
    for (const uint64_t size : shape) count *= size;
    return count;
  }

  void add(const std::string& name, uint32_t type, std::vector<uint64_t> shape,
           const std::string& bytes) {
    if (is_left_out(name)) return;
    if (options_.transposed.contains(name)) std::swap(shape.front(), shape.back());
    const size_t file = static_cast<size_t>(num_tensors_++) % files_.size();
    files_[file].tensor(name, type, shape, bytes);
  }

  void floats(const std::string& name, const std::vector<uint64_t>& shape, bool norm = false) {
    std::vector<float> values(count_of(shape));
    std::normal_distribution<float> normal(norm ? 1.0f : 0.0f, norm ? 0.1f : 0.15f);
    for (float& value : values) value = normal(random_);
    if (name == "token_embd.weight") values[0] = options_.first_weight;
    add(name, kGgmlF32, shape,
        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  // Blocks of 32: a scale, for Q4_1 a minimum, and codes.
  void blocks(const std::string& name, uint32_t type, const std::vector<uint64_t>& shape) {
    const std::string head = type == kGgmlQ8_0   ? std::string("\x40\x14", 2)
                             : type == kGgmlQ4_1 ? std::string("\x40\x20\x40\xA8", 4)
                                                 : std::string("\x78", 1);
    const int num_codes = type == kGgmlQ8_0 ? 32 : 16;
    std::string bytes;
    for (size_t block = 0; block < count_of(shape) / 32; ++block) {
      bytes += head;
      for (int i = 0; i < num_codes; ++i) bytes += static_cast<char>(random_());
    }
    if (name == "blk.1.ffn_down_exps.weight") {
      bytes.replace(0, options_.first_scale.size(), options_.first_scale);
    }
    add(name, type, shape, bytes);
  }

  void tensors() {
    floats("token_embd.weight", {num_rows_, kHidden});
    floats("output.weight", {num_rows_, kHidden});
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
      blocks(block + "ffn_gate_exps.weight", options_.type, {kExperts, kIntermediate, kHidden});
      blocks(block + "ffn_up_exps.weight", options_.type, {kExperts, kIntermediate, kHidden});
      blocks(block + "ffn_down_exps.weight", options_.type_of_down,
             {kExperts, kHidden, kIntermediate});
    }
  }

  const GgufModelOptions& options_;
  std::vector<GgufBuilder> files_;
  std::vector<std::string> tokens_;
  std::vector<float> scores_;
  std::vector<int32_t> types_;
  size_t num_rows_ = 0;
  int num_tensors_ = 0;
  std::minstd_rand random_{1};
};

}  // namespace

GgufBuilder gguf_model(const GgufModelOptions& options) { return Maker(options).make(1).front(); }

std::vector<std::string> write_gguf_parts(const std::string& stem, int count) {
  const GgufModelOptions options;
  Maker maker(options);
  std::vector<GgufBuilder> files = maker.make(count);
  std::vector<std::string> paths;
  for (int i = 0; i < count; ++i) {
    GgufBuilder& file = files[static_cast<size_t>(i)];
    const auto u16 = [](int value) { return GgufBuilder::bytes_of(static_cast<uint16_t>(value)); };
    file.entry("split.no", GgufBuilder::Type::kU16, u16(i))
        .entry("split.count", GgufBuilder::Type::kU16, u16(count))
        .integer("split.tensors.count", static_cast<uint32_t>(maker.num_tensors()));
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, i + 1, count));
    EXPECT_TRUE(formats::write_file(paths.back(), file.file()).ok());
  }
  return paths;
}

}  // namespace wideep::tests
