// SPDX-License-Identifier: Apache-2.0
//
// Outputs are opened by the readers that serve them, and compared with the floats before: the
// reported error with one computed here, fused experts with a bound of their format's step. Which
// tensors are quantised, copied or left out is held by name: a router that is quantised, or a
// tensor that is lost, is a worse model or none. Full disks are made by a limit on the size of
// files: nothing may be left that looks like a model.
#include "weights/quantize_checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "weights/checkpoint.h"
#include "weights/named_tensors.h"
#include "weights/quantized_tensors.h"
#include "weights/stored_matrix.h"

namespace wideep::weights {
namespace {

using base::ScratchDirectory;
using kernels::WeightFormat;
using testing::ElementsAre;
using testing::HasSubstr;

NamedTensor random_tensor(const std::string& name, std::vector<int64_t> shape) {
  std::mt19937 rng(static_cast<unsigned>(name.size()));
  std::normal_distribution<float> normal;
  size_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
  std::vector<Bf16> values(count);
  for (Bf16& value : values) value = Bf16(normal(rng));
  NamedTensor tensor{name, Dtype::kBf16, std::move(shape), std::vector<std::byte>(count * 2)};
  if (count > 0) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

void write_model(const ScratchDirectory& scratch) {
  const NamedTensor tensors[] = {
      random_tensor("model.embed_tokens.weight", {40, 128}),
      random_tensor("model.layers.0.self_attn.o_proj.weight", {130, 128}),
      random_tensor("model.layers.0.mlp.gate.weight", {8, 128}),
      random_tensor("model.layers.0.mlp.experts.0.up_proj.weight", {64, 192}),
      random_tensor("model.layers.0.input_layernorm.weight", {128})};
  std::vector<tensor_files::TensorToWrite> list;
  for (const NamedTensor& tensor : tensors) list.push_back(tensor.to_write());
  ASSERT_TRUE(tensor_files::write_safetensors(scratch.file("model.safetensors"), list).ok());
  ASSERT_TRUE(formats::write_file(scratch.file("config.json"), R"({"hidden_size": 128})").ok());
  ASSERT_TRUE(formats::write_file(scratch.file("tokenizer.json"), "{}").ok());
}

Result<QuantizeReport> quantize(const ScratchDirectory& from, const std::string& to,
                                WeightFormat format, uint64_t shard_bytes = 1 << 30) {
  base::ThreadPool pool(2);
  return quantize_checkpoint(
      {.model_dir = from.path(), .output_dir = to, .format = format, .shard_bytes = shard_bytes},
      pool, [](int64_t, int64_t) {});
}

void expect_copied(const Checkpoint& before, const Checkpoint& after, const std::string& name) {
  const tensor_files::TensorEntry *wanted = before.find(name), *got = after.find(name);
  ASSERT_NE(wanted, nullptr) << name;
  ASSERT_NE(got, nullptr) << name;
  EXPECT_EQ(got->dtype, wanted->dtype) << name;
  EXPECT_EQ(got->shape, wanted->shape) << name;
  EXPECT_TRUE(std::ranges::equal(got->bytes, wanted->bytes)) << name;
}

TEST(QuantizeCheckpoint, QuantizesMatricesAndCopiesTheRest) {
  const ScratchDirectory model, out;
  write_model(model);
  const auto before = Checkpoint::open(model.path());
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kInt8, WeightFormat::kInt4,
                                    WeightFormat::kMxfp4, WeightFormat::kNvfp4}) {
    const std::string dir = out.file(std::string(kernels::weight_format_name(format)));
    const auto report = quantize(model, dir, format);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->tensors.size(), 2u);
    EXPECT_TRUE(report->unfit.empty());
    const auto after = Checkpoint::open(dir);
    ASSERT_TRUE(after.ok()) << after.status().message();
    EXPECT_EQ(after->total_bytes(), report->bytes_after);
    const std::string up = "model.layers.0.mlp.experts.0.up_proj.weight";
    EXPECT_EQ(stored_form(*after, up, 192), (MatrixForm{format, report->group}));
    const auto stored = StoredMatrix::open(*after, up, 64, 192);
    const auto exact = StoredMatrix::open(*before, up, 64, 192);
    ASSERT_TRUE(stored.ok()) << stored.status().message();
    std::vector<float> got(64 * 192), wanted(got.size());
    stored->to_float32(0, 64, got.data());
    exact->to_float32(0, 64, wanted.data());
    double signal = 0.0, noise = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      signal += double{wanted[i]} * double{wanted[i]};
      noise += (double{got[i]} - double{wanted[i]}) * (double{got[i]} - double{wanted[i]});
    }
    EXPECT_NEAR(report->tensors[0].signal_to_noise_db, 10.0 * std::log10(signal / noise), 1e-6);
    for (const char* copied : {"model.embed_tokens.weight", "model.layers.0.mlp.gate.weight",
                               "model.layers.0.input_layernorm.weight"}) {
      expect_copied(*before, *after, copied);
    }
  }
}

TEST(QuantizeCheckpoint, RefusesWeightsThatAreNotFinite) {
  for (const float bad : {NAN, INFINITY}) {
    const ScratchDirectory model, out;
    write_model(model);
    NamedTensor tensor = random_tensor("m.o_proj.weight", {130, 128});
    reinterpret_cast<Bf16*>(tensor.bytes.data())[129 * 128 + 7] = Bf16(bad);
    const std::vector<tensor_files::TensorToWrite> list = {tensor.to_write()};
    ASSERT_TRUE(tensor_files::write_safetensors(model.file("model.safetensors"), list).ok());
    for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kInt8, WeightFormat::kInt4,
                                      WeightFormat::kMxfp4, WeightFormat::kNvfp4}) {
      const auto report = quantize(model, out.file("model"), format);
      EXPECT_THAT(report.status().message(), HasSubstr("m.o_proj.weight"));
      EXPECT_THAT(report.status().message(), HasSubstr("in row 129, column 7"));
    }
  }
}

TEST(QuantizeCheckpoint, CopiesTensorsThatAreNoMatrices) {
  const ScratchDirectory model, out;
  write_model(model);
  const NamedTensor tensors[] = {random_tensor("a.q_proj.weight", {}),
                                 random_tensor("b.q_proj.weight", {0, 128}),
                                 random_tensor("c.q_proj.weight", {2, 3, 8})};
  std::vector<tensor_files::TensorToWrite> list;
  for (const NamedTensor& tensor : tensors) list.push_back(tensor.to_write());
  ASSERT_TRUE(tensor_files::write_safetensors(model.file("model.safetensors"), list).ok());
  const auto report = quantize(model, out.file("model"), WeightFormat::kInt8);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->tensors.empty());
  EXPECT_EQ(report->group, 128);
  const auto before = Checkpoint::open(model.path()), after = Checkpoint::open(out.file("model"));
  ASSERT_TRUE(before.ok() && after.ok());
  // One without elements says nothing, and is left out.
  EXPECT_THAT(after->names(), ElementsAre("a.q_proj.weight", "c.q_proj.weight"));
  for (const std::string& name : after->names()) expect_copied(*before, *after, name);
}

// A family whose files hold the text model beside another, with other names and fused experts.
class FusedModel {
 public:
  static constexpr int kExperts = 2;

  FusedModel() {
    const NamedTensor tensors[] = {
        random_tensor("text.model.embed_tokens.weight", {40, 128}),
        random_tensor("text.model.layers.0.attention.wq.weight", {128, 128}),
        random_tensor("text.model.layers.0.moe.experts.gate_up_proj", {kExperts, 128, 2 * 64}),
        random_tensor("text.model.layers.0.moe.experts.down_proj", {kExperts, 64, 128}),
        random_tensor("text.model.layers.0.moe.experts.down_proj_bias", {kExperts, 128}),
        random_tensor("text.model.layers.1.self_attn.o_proj.weight", {128, 128}),
        random_tensor("vision.layers.0.self_attn.q_proj.weight", {128, 128})};
    std::vector<tensor_files::TensorToWrite> list;
    for (const NamedTensor& tensor : tensors) list.push_back(tensor.to_write());
    const std::vector<int64_t> positions = {0, 1};
    list.push_back({"vision.position_ids",
                    Dtype::kI64,
                    {2},
                    std::as_bytes(std::span<const int64_t>(positions))});
    EXPECT_TRUE(tensor_files::write_safetensors(scratch_.file("model.safetensors"), list).ok());
    EXPECT_TRUE(formats::write_file(scratch_.file("config.json"), "{}").ok());
  }

  static TensorNames names() {
    TensorNames names;
    names.prefix("", "text.")
        .rename("self_attn.q_proj", "attention.wq")
        .fuse_experts("moe.experts.gate_up_proj", "moe.experts.down_proj", GateUp::kAlternating,
                      true)
        .rename("mlp", "moe");
    return names;
  }

  QuantizeOptions options(const std::string& output, WeightFormat format) const {
    QuantizeOptions options{.model_dir = scratch_.path(), .output_dir = output, .format = format};
    options.names = names();
    options.num_experts = kExperts;
    options.matrices = {{"model.layers.0.self_attn.q_proj.weight", 128, 128}};
    for (int expert = 0; expert < kExperts; ++expert) {
      const std::string prefix = fmt::format("model.layers.0.mlp.experts.{}.", expert);
      options.matrices.push_back({prefix + "gate_proj.weight", 64, 128});
      options.matrices.push_back({prefix + "up_proj.weight", 64, 128});
      options.matrices.push_back({prefix + "down_proj.weight", 128, 64});
    }
    return options;
  }
  const std::string& path() const { return scratch_.path(); }

 private:
  ScratchDirectory scratch_;
};

std::vector<float> read(const Checkpoint& files, const ListedMatrix& matrix) {
  const NamedTensors tensors(files, files.names(), FusedModel::names(), FusedModel::kExperts);
  const auto stored = StoredMatrix::open(tensors, matrix.name, matrix.n, matrix.k);
  EXPECT_TRUE(stored.ok()) << stored.status().message();
  std::vector<float> values(static_cast<size_t>(matrix.n) * static_cast<size_t>(matrix.k));
  if (stored.ok()) stored->to_float32(0, matrix.n, values.data());
  return values;
}

TEST(QuantizeCheckpoint, WritesPartsOfTensorsOnTheirOwn) {
  const FusedModel model;
  const ScratchDirectory out;
  base::ThreadPool pool(2);
  const QuantizeOptions options = model.options(out.file("out"), WeightFormat::kInt8);
  const auto report = quantize_checkpoint(options, pool, [](int64_t, int64_t) {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto before = Checkpoint::open(model.path()), after = Checkpoint::open(options.output_dir);
  ASSERT_TRUE(before.ok() && after.ok());
  std::vector<std::string> quantized;
  for (const QuantizedTensor& tensor : report->tensors) quantized.push_back(tensor.name);
  // Layer 1 is not listed.
  EXPECT_THAT(quantized, ElementsAre("text.model.layers.0.attention.wq.weight",
                                     "text.model.layers.0.moe.experts.0.down_proj.weight",
                                     "text.model.layers.0.moe.experts.0.gate_proj.weight",
                                     "text.model.layers.0.moe.experts.0.up_proj.weight",
                                     "text.model.layers.0.moe.experts.1.down_proj.weight",
                                     "text.model.layers.0.moe.experts.1.gate_proj.weight",
                                     "text.model.layers.0.moe.experts.1.up_proj.weight",
                                     "text.model.layers.1.self_attn.o_proj.weight"));
  EXPECT_FALSE(after->has("text.model.layers.0.moe.experts.gate_up_proj"));
  for (const char* copied :
       {"text.model.embed_tokens.weight", "text.model.layers.0.moe.experts.down_proj_bias",
        "vision.layers.0.self_attn.q_proj.weight", "vision.position_ids"}) {
    expect_copied(*before, *after, copied);
  }
  // The same options read the output: half a step of the largest element of a group is the error.
  for (const ListedMatrix& matrix : options.matrices) {
    const std::vector<float> wanted = read(*before, matrix), got = read(*after, matrix);
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 0.03) << matrix.name;
  }
}

TEST(QuantizeCheckpoint, UnfitPartsStayTogether) {
  const FusedModel model;
  const ScratchDirectory out;
  base::ThreadPool pool(1);
  QuantizeOptions options = model.options(out.file("out"), WeightFormat::kInt8);
  // No group fills 40 columns.
  const NamedTensor odd = random_tensor("text.model.layers.0.moe.experts.gate_up_proj",
                                        {FusedModel::kExperts, 40, 128});
  const NamedTensor down =
      random_tensor("text.model.layers.0.moe.experts.down_proj", {FusedModel::kExperts, 64, 40});
  const std::vector<tensor_files::TensorToWrite> list = {odd.to_write(), down.to_write()};
  ASSERT_TRUE(tensor_files::write_safetensors(model.path() + "/model.safetensors", list).ok());
  options.matrices.clear();
  for (const char* expert : {"0", "1"}) {
    const std::string prefix = std::string("model.layers.0.mlp.experts.") + expert;
    options.matrices.push_back({prefix + ".gate_proj.weight", 64, 40});
    options.matrices.push_back({prefix + ".up_proj.weight", 64, 40});
    options.matrices.push_back({prefix + ".down_proj.weight", 40, 64});
  }
  const auto report = quantize_checkpoint(options, pool, [](int64_t, int64_t) {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->unfit, ElementsAre("text.model.layers.0.moe.experts.gate_up_proj"));
  EXPECT_EQ(report->tensors.size(), 2u);
  const auto after = Checkpoint::open(options.output_dir);
  ASSERT_TRUE(after.ok());
  EXPECT_TRUE(after->has("text.model.layers.0.moe.experts.gate_up_proj"));
  EXPECT_TRUE(after->has("text.model.layers.0.moe.experts.1.down_proj.weight_packed"));
}

TEST(QuantizeCheckpoint, RefusesListedMatricesThatAreMissing) {
  const FusedModel model;
  const ScratchDirectory out;
  base::ThreadPool pool(1);
  QuantizeOptions options = model.options(out.file("out"), WeightFormat::kInt8);
  options.matrices.push_back({"model.layers.9.self_attn.q_proj.weight", 128, 128});
  const auto report = quantize_checkpoint(options, pool, [](int64_t, int64_t) {});
  EXPECT_THAT(report.status().message(), HasSubstr("text.model.layers.9.attention.wq.weight"));
  EXPECT_FALSE(std::filesystem::exists(options.output_dir));
}

// The error comes before any work is done.
TEST(QuantizeCheckpoint, NeedsAConfig) {
  const ScratchDirectory model, out;
  write_model(model);
  std::filesystem::remove(model.file("config.json"));
  EXPECT_FALSE(quantize(model, out.file("model"), WeightFormat::kInt8).ok());
  EXPECT_FALSE(std::filesystem::exists(out.file("model/model.safetensors")));
}

TEST(QuantizeCheckpoint, ConfigNamesTheModulesThatAreNotQuantized) {
  const ScratchDirectory model, out;
  write_model(model);
  const std::string dir = out.file("out");
  ASSERT_TRUE(quantize(model, dir, WeightFormat::kInt4).ok());
  const auto config = nlohmann::json::parse(*formats::read_file(dir + "/config.json"));
  EXPECT_EQ(config["hidden_size"], 128);
  EXPECT_EQ(config["quantization_config"]["format"], "pack-quantized");
  EXPECT_THAT(config["quantization_config"]["ignore"].get<std::vector<std::string>>(),
              ElementsAre("model.embed_tokens", "model.layers.0.mlp.gate"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/tokenizer.json"));
}

TEST(QuantizeCheckpoint, WritesLargeModelsAsShardsWithAnIndex) {
  const ScratchDirectory model, out;
  write_model(model);
  const std::string dir = out.file("out");
  const auto report = quantize(model, dir, WeightFormat::kInt8, 8000);
  ASSERT_TRUE(report.ok()) << report.status().message();
  for (int i = 1; i <= 6; ++i) {
    EXPECT_TRUE(
        std::filesystem::exists(fmt::format("{}/model-0000{}-of-00006.safetensors", dir, i)));
  }
  const auto checkpoint = Checkpoint::open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->total_bytes(), report->bytes_after);
}

// The limit of file sizes stops the last shard, as a full disk does.
TEST(QuantizeCheckpoint, AFullDiskLeavesNothing) {
  const ScratchDirectory model, scratch;
  write_model(model);
  const std::string output = scratch.file("out");
  base::ThreadPool pool(2);
  int64_t tensors = 0;
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited;
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit limit{.rlim_cur = 16'000, .rlim_max = unlimited.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const auto written = quantize_checkpoint({.model_dir = model.path(),
                                            .output_dir = output,
                                            .format = WeightFormat::kInt8,
                                            .shard_bytes = 8000},
                                           pool, [&](int64_t done, int64_t) {
                                             tensors = done;
                                             EXPECT_TRUE(std::filesystem::exists(output));
                                           });
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(tensors, 4);  // the earlier shards were whole
  EXPECT_EQ(written.status().code(), StatusCode::kFailed);
  EXPECT_THAT(
      written.status().message(),
      testing::ContainsRegex("safetensors: .*File too large.*; what was written is removed"));
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST(QuantizeCheckpoint, RefusesCodedInputAndNonEmptyOutput) {
  const ScratchDirectory model, out;
  write_model(model);
  const std::string dir = out.file("out");
  ASSERT_TRUE(quantize(model, dir, WeightFormat::kInt8).ok());
  EXPECT_THAT(quantize(model, dir, WeightFormat::kInt8).status().message(),
              HasSubstr("expected an empty directory or none"));
  base::ThreadPool pool(1);
  const auto again = quantize_checkpoint(
      {.model_dir = dir, .output_dir = out.file("again"), .format = WeightFormat::kInt8}, pool,
      [](int64_t, int64_t) {});
  EXPECT_EQ(again.status().exit_code(), 2);
  EXPECT_THAT(again.status().message(), HasSubstr("quantise the original checkpoint of floats"));
}

}  // namespace
}  // namespace wideep::weights
