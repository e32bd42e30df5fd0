// SPDX-License-Identifier: Apache-2.0
// wideep quantize: the written checkpoint is read again, whole or matrix by matrix, and predicts as
// the original does.
#include <gtest/gtest.h>

#include <filesystem>

#include "command.h"
#include "command_model.h"
#include "formats/files.h"
#include "measure/model/score.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using tensor_files::TensorToWrite;

constexpr const char* kText = "A small cat sat by the door, and nobody knew whose it was.";

CommandEnd quantize(const std::string& model, const std::string& to, const std::string& output,
                    const std::vector<std::string>& more = {}) {
  CommandOptions options{
      .arguments = {"quantize", "--model", model, "--to", to, "--output", output}};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return run_command(options);
}

json generated(const std::string& model, const std::vector<std::string>& more) {
  CommandOptions options = generate(model, more);
  options.arguments.insert(options.arguments.end(), {"--json", "--logits-digest"});
  const CommandEnd end = run_command(options);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  return json::parse(end.out, nullptr, false);
}

class CommandQuantize : public testing::TestWithParam<const char*> {
 protected:
  const base::ScratchDirectory scratch_;
};

INSTANTIATE_TEST_SUITE_P(Format, CommandQuantize,
                         testing::Values("fp8", "int8", "int4", "mxfp4", "nvfp4"),
                         [](const auto& test) { return test.param; });

TEST_P(CommandQuantize, WritesAModelThatRuns) {
  const std::string out = scratch_.file("out"), text = scratch_.file("text");
  ASSERT_TRUE(formats::write_file(text, kText).ok());
  const CommandEnd end = quantize(small_model(), GetParam(), out, {"--text", text, "--json"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  EXPECT_EQ(report.at("format"), GetParam());
  EXPECT_LT(report.at("bytes_after"), report.at("bytes_before"));
  const double before = report.at("quality").at("perplexity_bf16");
  EXPECT_NEAR(report.at("quality").at("perplexity").get<double>(), before, 0.2 * before);
  const json one = generated(out, {"--ranks", "1"}), two = generated(out, {"--ranks", "2"});
  ASSERT_TRUE(one.is_object() && two.is_object());
  EXPECT_EQ(one.at("results"), two.at("results"));
}

// The check of what was written runs the model, whose layers may keep states.
TEST(CommandQuantizeStates, ModelsWithStatesAreChecked) {
  for (const char* golden : {"qwen3_next_plain", "lfm2_moe_plain"}) {
    const base::ScratchDirectory scratch;
    const std::string model = scratch.file("model"), text = scratch.file("text");
    ASSERT_TRUE(std::filesystem::create_directory(model));
    write_random_model_like(model, golden);
    ASSERT_TRUE(formats::write_file(text, kText).ok());
    const CommandEnd end = quantize(model, "int8", scratch.file("out"), {"--text", text, "--json"});
    ASSERT_EQ(end.exit_code, 0) << golden << end.err;
    const json quality = json::parse(end.out, nullptr, false).at("quality");
    const double before = quality.at("perplexity_bf16");
    EXPECT_NEAR(quality.at("perplexity").get<double>(), before, 0.2 * before) << golden;
  }
}

// The tensors that store a matrix: its weight, or codes and scales.
bool belongs_to(const std::string& tensor, const std::string& part) {
  return tensor.find(part) != std::string::npos;
}

// The small model, with the matrices of `part` taken from another model's file.
void replace(std::vector<TensorToWrite>& tensors, const tensor_files::SafetensorsFile& file,
             const std::string& part) {
  std::erase_if(tensors, [&](const TensorToWrite& t) { return belongs_to(t.name, part); });
  for (const auto& [name, entry] : file.tensors()) {
    if (belongs_to(name, part)) tensors.push_back({name, entry.dtype, entry.shape, entry.bytes});
  }
}

TEST(CommandQuantizeMixed, EachMatrixIsReadInItsOwnFormat) {
  const base::ScratchDirectory scratch;
  const std::string nvfp4 = scratch.file("nvfp4"), int8 = scratch.file("int8");
  ASSERT_EQ(quantize(small_model(), "nvfp4", nvfp4, {"--no-evaluation"}).exit_code, 0);
  ASSERT_EQ(quantize(small_model(), "int8", int8, {"--no-evaluation"}).exit_code, 0);
  const auto fours = tensor_files::SafetensorsFile::open(nvfp4 + "/model.safetensors");
  const auto eights = tensor_files::SafetensorsFile::open(int8 + "/model.safetensors");
  ASSERT_TRUE(fours.ok() && eights.ok());
  const ModelCopy mixed;
  mixed.edit_tensors([&](std::vector<TensorToWrite>& tensors) {
    replace(tensors, *fours, ".o_proj.");
    replace(tensors, *eights, ".mlp.experts.");
  });
  base::ThreadPool pool(1);
  const auto exact = measure::score_text({.model_dir = small_model(), .format = {}}, kText, pool);
  const auto scores = measure::score_text({.model_dir = mixed.path(), .format = {}}, kText, pool);
  ASSERT_TRUE(exact.ok() && scores.ok()) << scores.status().message();
  EXPECT_NE(scores->log_probabilities, exact->log_probabilities);
  EXPECT_NEAR(scores->perplexity(), exact->perplexity(), 0.1 * exact->perplexity());
  EXPECT_EQ(generated(mixed.path(), {"--ranks", "1"}).at("results"),
            generated(mixed.path(), {"--ranks", "2"}).at("results"));
}

TEST(CommandQuantizeErrors, OneLineAndNothingIsWritten) {
  const base::ScratchDirectory scratch;
  expect_refused(quantize("/nonexistent/model", "int8", scratch.file("out")),
                 {"/nonexistent/model"});
  expect_refused(quantize(small_model(), "int3", scratch.file("out")), {"--to", "int3"});
  ASSERT_TRUE(formats::write_file(scratch.file("there"), "").ok());
  expect_refused(quantize(small_model(), "int8", scratch.path()), {"expected an empty directory"});
}

}  // namespace
}  // namespace wideep::tests
