// SPDX-License-Identifier: Apache-2.0
// GGUF files that are cut short, that lie, or that hold what wideep does not compute: each is
// refused before any rank starts, with one line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"
#include "gguf_model.h"

namespace wideep::tests {
namespace {

using tensor_files::GgufBuilder;

constexpr uint64_t kHuge = ~uint64_t{0};

// A file and the parts of the line that refuses it.
struct Case {
  const char* name;
  std::string content;
  std::vector<std::string> parts;
};

// The model with some options changed.
std::string with(const std::function<void(GgufModelOptions&)>& change) {
  GgufModelOptions options;
  change(options);
  return gguf_model(options).file();
}

std::string with_integer(const std::string& key, uint32_t value) {
  return with([&](GgufModelOptions& options) { options.integers[key] = value; });
}

std::string with_more(const std::function<void(GgufBuilder&)>& more) {
  return with([&](GgufModelOptions& options) { options.more = more; });
}

std::string without(const std::string& name) {
  return with([&](GgufModelOptions& options) { options.left_out.insert(name); });
}

// The model with the first place of some bytes replaced by as many others.
std::string replaced(const std::string& what, const std::string& by) {
  std::string bytes = gguf_model().file();
  const size_t at = bytes.find(what);
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos) bytes.replace(at, by.size(), by);
  return bytes;
}

// An entry of the list of tensors up to its dimensions, the fastest first.
std::string entry_of(const std::string& name, const std::vector<uint64_t>& dimensions) {
  std::string entry =
      GgufBuilder::text(name) + GgufBuilder::bytes_of(static_cast<uint32_t>(dimensions.size()));
  for (const uint64_t size : dimensions) entry += GgufBuilder::bytes_of(size);
  return entry;
}

std::vector<Case> cut_short() {
  const std::string whole = gguf_model().file();
  return {
      {"empty", "", {"expected a file that begins with 'GGUF'"}},
      {"magic", whole.substr(0, 3), {"expected a file that begins with 'GGUF'"}},
      {"version", whole.substr(0, 6), {"the version", "cut short"}},
      {"counts", whole.substr(0, 20), {"the number of metadata entries", "cut short"}},
      {"metadata", whole.substr(0, 2000), {"tokenizer.ggml.tokens", "cut short"}},
      {"data", whole.substr(0, whole.size() - 4096), {"tensor 'blk.", "of the data", "cut short"}},
  };
}

std::vector<Case> other_files() {
  return {
      {"ggml", "tjgg" + std::string(60, '\0'), {"the old format GGJT", "begins with 'GGUF'"}},
      {"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n", {"Git LFS"}},
      {"version_1", GgufBuilder::header("GGUF", 1, 0, 0), {"expected version 2 or 3, found 1"}},
      {"big_endian", GgufBuilder::header("GGUF", 3u << 24, 0, 0), {"big endian"}},
      {"nothing", GgufBuilder::header("GGUF", 3, 0, 0), {"general.architecture: missing"}},
  };
}

std::vector<Case> lying_numbers() {
  const std::string embedding = entry_of("token_embd.weight", {64, 286});
  const auto as_embedding = [&](const std::vector<uint64_t>& dimensions) {
    return replaced(embedding, entry_of("token_embd.weight", dimensions));
  };
  const std::string type = GgufBuilder::bytes_of<uint32_t>(0);
  return {
      {"entries", GgufBuilder::header("GGUF", 3, 0, kHuge), {"a key", "cut short"}},
      {"tensors", GgufBuilder::header("GGUF", 3, kHuge, 0), {"a tensor's name", "cut short"}},
      {"length",
       replaced(GgufBuilder::text("llama.block_count"), GgufBuilder::bytes_of(kHuge)),
       {"expected 18446744073709551615 bytes of a key"}},
      {"list",
       replaced(GgufBuilder::bytes_of<uint32_t>(8) + GgufBuilder::bytes_of<uint64_t>(286),
                GgufBuilder::bytes_of<uint32_t>(8) + GgufBuilder::bytes_of(kHuge)),
       {"tokenizer.ggml.tokens: a list of 18446744073709551615 elements"}},
      {"dimension_0", as_embedding({64, 0}), {"token_embd.weight", "from 1 to 2^63-1, found 0"}},
      {"dimension_2_63", as_embedding({64, uint64_t{1} << 63}), {"found 9223372036854775808"}},
      {"product", as_embedding({uint64_t{1} << 40, uint64_t{1} << 40}), {"more than 2^63 bytes"}},
      {"large", as_embedding({64, uint64_t{1} << 40}), {"token_embd.weight", "cut short"}},
      {"dimensions",
       replaced(embedding, entry_of("token_embd.weight", {}).substr(0, 25) +
                               GgufBuilder::bytes_of<uint32_t>(5)),
       {"expected 1 to 4 dimensions, found 5"}},
      {"offset",
       replaced(embedding + type + GgufBuilder::bytes_of<uint64_t>(0),
                embedding + type + GgufBuilder::bytes_of<uint64_t>(kHuge - 31)),
       {"token_embd.weight", "cut short"}},
      {"offset_between",
       replaced(embedding + type + GgufBuilder::bytes_of<uint64_t>(0),
                embedding + type + GgufBuilder::bytes_of<uint64_t>(4)),
       {"multiple of 32 (general.alignment), found 4"}},
      {"overlap",
       replaced(embedding + type + GgufBuilder::bytes_of<uint64_t>(0),
                embedding + type + GgufBuilder::bytes_of<uint64_t>(32)),
       {"overlaps tensor 'token_embd.weight'"}},
      {"alignment",
       with_more([](auto& b) { b.integer("general.alignment", 48); }),
       {"general.alignment: expected a power of two", "found 48"}},
      {"key_twice",
       with_more([](auto& b) { b.integer("llama.block_count", 2); }),
       {"llama.block_count: expected it once, found it twice"}},
      {"tensor_twice",
       with_more([](auto& b) { b.floats("output_norm.weight", {1}, {1.0f}); }),
       {"tensor 'output_norm.weight': expected it once, found it twice"}},
      {"type_of_value",
       with_more([](auto& b) { b.entry("k", 13u, ""); }),
       {"k: expected a type of value from 0 to 12, found 13"}},
  };
}

std::vector<Case> unknown_kinds() {
  const std::string embedding = entry_of("token_embd.weight", {64, 286});
  const auto of_type = [&](uint32_t type) {
    return replaced(embedding, embedding + GgufBuilder::bytes_of(type));
  };
  const auto of_architecture = [](const std::string& name) {
    return with([&](GgufModelOptions& options) { options.architecture = name; });
  };
  return {
      {"type_known_to_ggml",
       of_type(16),
       {"token_embd.weight", "type 16 (IQ2_XXS) is not supported; supported: F32"}},
      {"type_of_old_files", of_type(31), {"type 31 (Q4_0_4_4) is not supported"}},
      {"type", of_type(12345), {"type 12345 (none of ggml's) is not supported"}},
      {"architecture", of_architecture("gemma3"), {"gemma3 is not supported; supported: qwen3moe"}},
      {"no_architecture", without("general.architecture"), {"general.architecture: missing"}},
      {"no_experts", without("llama.expert_count"), {"llama.expert_count", "missing or 0"}},
      {"tokenizer",
       with([](GgufModelOptions& options) {
         options.left_out.insert("tokenizer.ggml.tokens");
         options.more = [](auto& b) { b.string("tokenizer.ggml.model", "bert"); };
       }),
       {"tokenizer.ggml.model: expected gemma4, gpt2 or llama, found bert"}},
  };
}

std::vector<Case> contradictions() {
  return {
      {"layers", with_integer("llama.block_count", 3), {"tensor 'blk.2.", "missing"}},
      {"fewer_layers", with_integer("llama.block_count", 1), {"tensor 'blk.1."}},
      {"most_layers", with_integer("llama.block_count", 4294967295u), {"llama.block_count"}},
      {"no_layers", without("llama.block_count"), {"llama.block_count"}},
      {"hidden",
       with_integer("llama.embedding_length", 96),
       {"token_embd.weight", "286 rows of 96"}},
      {"heads_0", with_integer("llama.attention.head_count", 0), {"llama.attention.head_count"}},
      {"heads", with_integer("llama.attention.head_count", 3), {"head_dim", "even", "21"}},
      {"kv_heads", with_integer("llama.attention.head_count_kv", 3), {"head_count_kv"}},
      {"experts", with_integer("llama.expert_count", 8), {"ffn_gate_inp.weight", "8 rows"}},
      {"top_k", with_integer("llama.expert_used_count", 5), {"llama.expert_used_count"}},
      {"top_k_0", with_integer("llama.expert_used_count", 0), {"llama.expert_used_count"}},
      {"width", with_integer("llama.feed_forward_length", 64), {"ffn_gate_exps.weight"}},
      {"context", with_integer("llama.context_length", 0), {"llama.context_length"}},
      {"no_tensor", without("blk.1.attn_q.weight"), {"tensor 'blk.1.attn_q.weight': missing"}},
      {"shape",
       with([](GgufModelOptions& options) { options.transposed.insert("blk.0.attn_k.weight"); }),
       {"tensor 'blk.0.attn_k.weight': expected 32 rows of 64, found [64, 32]"}},
      {"bias",
       with_more([](auto& b) { b.floats("blk.0.attn_output.bias", {64}, std::vector<float>(64)); }),
       {"tensor 'blk.0.attn_output.bias'"}},
  };
}

std::vector<Case> wrong_tokens() {
  return {
      {"more_than_rows",
       with([](GgufModelOptions& options) { options.more_tokens = 3; }),
       {"token ids up to 288, but the rows of token_embd.weight are 286"}},
      {"bos",
       with_integer("tokenizer.ggml.bos_token_id", 286),
       {"bos_token_id: expected a token from 0 to 285, found 286"}},
      {"eos", with_integer("tokenizer.ggml.eos_token_id", 4000000000u), {"eos_token_id"}},
      {"scores", without("tokenizer.ggml.scores"), {"tokenizer.ggml.scores: missing"}},
      {"none",
       without("tokenizer.ggml.tokens"),
       {"tokenizer.ggml.model: expected gemma4, gpt2 or llama"}},
  };
}

void expect_all_refused(const std::vector<Case>& cases) {
  const base::ScratchDirectory scratch;
  for (const Case& each : cases) {
    const std::string path = scratch.file(std::string(each.name) + ".gguf");
    ASSERT_TRUE(formats::write_file(path, each.content).ok());
    SCOPED_TRACE(each.name);
    std::vector<std::string> parts = each.parts;
    parts.push_back(path);
    expect_refused(run_command(generate(path)), parts);
  }
}

TEST(BadGguf, CutShort) { expect_all_refused(cut_short()); }
TEST(BadGguf, OtherFiles) { expect_all_refused(other_files()); }
TEST(BadGguf, LyingNumbers) { expect_all_refused(lying_numbers()); }
TEST(BadGguf, UnknownKinds) { expect_all_refused(unknown_kinds()); }
TEST(BadGguf, Contradictions) { expect_all_refused(contradictions()); }
TEST(BadGguf, WrongTokens) { expect_all_refused(wrong_tokens()); }

TEST(BadGguf, NoFile) {
  const base::ScratchDirectory scratch;
  expect_refused(run_command(generate(scratch.file("absent.gguf"))), {"absent.gguf"});
  const std::string directory = scratch.file("files");
  std::filesystem::create_directory(directory);
  ASSERT_TRUE(formats::write_file(directory + "/b.gguf", gguf_model().file()).ok());
  ASSERT_TRUE(formats::write_file(directory + "/a.gguf", gguf_model().file()).ok());
  expect_refused(run_command(generate(directory)),
                 {directory + ": a directory of GGUF files", directory + "/a.gguf"});
}

// ---- several files ----

class BadGgufParts : public testing::Test {
 protected:
  void expect(int part, const std::vector<std::string>& parts) const {
    expect_refused(run_command(generate(paths_[static_cast<size_t>(part)])), parts);
  }
  void copy(int from, int to) const {
    std::filesystem::copy_file(paths_[static_cast<size_t>(from)], paths_[static_cast<size_t>(to)],
                               std::filesystem::copy_options::overwrite_existing);
  }

  const base::ScratchDirectory scratch_;
  const std::vector<std::string> paths_ = write_gguf_parts(scratch_.file("m"), 3);
};

TEST_F(BadGgufParts, Missing) {
  std::filesystem::remove(paths_[1]);
  expect(0, {paths_[1] + ": missing", "the model has 3 files"});
}

// A part that is another one: reading goes by names and never in circles.
TEST_F(BadGgufParts, Cycle) {
  std::filesystem::remove(paths_[2]);
  std::filesystem::create_symlink(paths_[0], paths_[2]);
  expect(0, {paths_[2], "expected file 3 of 3", "file 1 of 3"});
}

TEST_F(BadGgufParts, Copied) {
  copy(1, 2);
  expect(0, {paths_[2], "expected file 3 of 3", "file 2 of 3"});
}

TEST_F(BadGgufParts, CutShort) {
  std::filesystem::resize_file(paths_[2], std::filesystem::file_size(paths_[2]) - 4096);
  expect(0, {paths_[2], "cut short"});
}

TEST_F(BadGgufParts, Renamed) {
  const std::string other = scratch_.file("renamed.gguf");
  std::filesystem::rename(paths_[0], other);
  expect_refused(run_command(generate(other)), {other, "file 1 of 3", "-00001-of-00003.gguf"});
}

// ---- after the start ----

void expect_no_number(const GgufModelOptions& options, const std::string& tensor) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("m.gguf");
  ASSERT_TRUE(formats::write_file(path, gguf_model(options).file()).ok());
  expect_error(run_command(generate(path)), 2, {path, "'" + tensor + "'", "finite"});
}

TEST(BadGguf, WeightThatIsNoNumber) {
  GgufModelOptions options;
  options.first_weight = std::numeric_limits<float>::quiet_NaN();
  expect_no_number(options, "token_embd.weight");
}

// Scales lie between the codes: float16 NaN and infinity, a power of two beyond float32.
TEST(BadGguf, ScaleThatIsNoNumber) {
  const std::string down = "blk.1.ffn_down_exps.weight";
  expect_no_number({.first_scale = {"\x01\x7e", 2}}, down);
  expect_no_number({.type = kGgmlMxfp4, .type_of_down = kGgmlMxfp4, .first_scale = "\xff"}, down);
  std::string infinity(2, '\0');
  infinity[1] = '\xfc';
  expect_no_number({.type_of_down = kGgmlQ4_1, .first_scale = infinity}, down);
}

void expect_no_server(const GgufModelOptions& options, const std::string& part) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("m.gguf");
  ASSERT_TRUE(formats::write_file(path, gguf_model(options).file()).ok());
  expect_error(run_command({.arguments = {"serve", "--model", path, "--port", "0"}}), 2,
               {path + ": " + part});
}

TEST(BadGguf, ChatTemplates) {
  expect_no_server({.chat_template = "{% for message in %}"}, "tokenizer.chat_template");
  const auto templates = [](auto& b) { b.integer("tokenizer.chat_templates", 1); };
  expect_no_server({.more = templates},
                   "tokenizer.chat_templates: expected a list of texts, found an integer");
  const auto other = [](auto& b) { b.integer("tokenizer.chat_template", 1); };
  expect_no_server({.left_out = {"tokenizer.chat_template"}, .more = other},
                   "tokenizer.chat_template: expected a text, found an integer");
}

}  // namespace
}  // namespace wideep::tests
