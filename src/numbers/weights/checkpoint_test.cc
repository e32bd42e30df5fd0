// SPDX-License-Identifier: Apache-2.0
//
// Small checkpoints with one thing wrong are held against the line that must name file and tensor:
// a shard that is missing or has another tensor, an index that leads out of the folder, a shape
// that is transposed. All 65,536 values of F16 are held against the format's definition, to the
// bit, and those of BF16 against the upper half of a float. A failure would be a model that loads
// and answers nonsense.
#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::weights {
namespace {

using base::ScratchDirectory;
using formats::write_file;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

void write_shard(const std::string& path, const std::vector<std::string>& names) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::vector<tensor_files::TensorToWrite> tensors;
  for (const std::string& name : names) {
    tensors.push_back({name, Dtype::kF32, {2, 3}, bytes_of(values)});
  }
  const Status status = tensor_files::write_safetensors(path, tensors);
  ASSERT_TRUE(status.ok()) << status.message();
}

std::string open_error(const std::string& model_dir) {
  const auto checkpoint = Checkpoint::open(model_dir);
  EXPECT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.status().exit_code(), 2);
  EXPECT_THAT(checkpoint.status().message(), Not(HasSubstr("\n")));
  return checkpoint.status().message();
}

// Opens a checkpoint of two shards ("one" with a and b, "two" with c) and this index.
std::string open_error_with_index(const std::string& index) {
  const ScratchDirectory scratch;
  write_shard(scratch.file("one.safetensors"), {"a", "b"});
  write_shard(scratch.file("two.safetensors"), {"c"});
  EXPECT_TRUE(write_file(scratch.file("model.safetensors.index.json"), index).ok());
  return open_error(scratch.path());
}

TEST(Checkpoint, SingleFile) {
  const ScratchDirectory scratch;
  write_shard(scratch.file("model.safetensors"), {"norm", "embed"});
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT(checkpoint->names(), ElementsAre("embed", "norm"));
  EXPECT_TRUE(checkpoint->has("norm"));
  EXPECT_FALSE(checkpoint->has("nor"));
  EXPECT_EQ(checkpoint->total_bytes(), 48u);
  const auto tensor = checkpoint->tensor("norm", {2, 3});
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  EXPECT_EQ((*tensor)->num_elements(), 6);
}

TEST(Checkpoint, Shards) {
  const ScratchDirectory scratch;
  write_shard(scratch.file("one.safetensors"), {"a", "b"});
  write_shard(scratch.file("two.safetensors"), {"c"});
  write_shard(scratch.file("not-of-this-model.safetensors"), {"a"});
  ASSERT_TRUE(write_file(scratch.file("model.safetensors.index.json"),
                         R"({"metadata": {"total_size": 72}, "weight_map": {
                             "a": "one.safetensors", "b": "one.safetensors",
                             "c": "two.safetensors"}})")
                  .ok());
  auto opened = Checkpoint::open(scratch.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint checkpoint = std::move(opened).value();
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "c"));
  std::vector<float> values(6);
  to_float32(**checkpoint.tensor("c", {2, 3}), values.data());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
}

std::string fingerprint_of(const ScratchDirectory& scratch) {
  const auto checkpoint = Checkpoint::open(scratch.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint.ok() ? checkpoint->fingerprint() : "";
}

// Nodes compare it, and may have the same model in other files.
TEST(Checkpoint, FingerprintIsTheSameHoweverTensorsAreSpread) {
  const ScratchDirectory whole, two, other_two, renamed;
  write_shard(whole.file("model.safetensors"), {"a", "b", "c"});
  const std::string expected = fingerprint_of(whole);
  EXPECT_FALSE(expected.empty());
  write_shard(two.file("one.safetensors"), {"a", "b"});
  write_shard(two.file("two.safetensors"), {"c"});
  ASSERT_TRUE(write_file(two.file("model.safetensors.index.json"),
                         R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",
                             "c": "two.safetensors"}})")
                  .ok());
  EXPECT_EQ(fingerprint_of(two), expected);
  write_shard(other_two.file("one.safetensors"), {"c", "a"});
  write_shard(other_two.file("two.safetensors"), {"b"});
  ASSERT_TRUE(write_file(other_two.file("model.safetensors.index.json"),
                         R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors",
                             "c": "one.safetensors"}})")
                  .ok());
  EXPECT_EQ(fingerprint_of(other_two), expected);
  write_shard(renamed.file("model.safetensors"), {"a", "b", "d"});
  EXPECT_NE(fingerprint_of(renamed), expected);
}

TEST(Checkpoint, RefusesDirectoriesWithoutAModel) {
  const ScratchDirectory scratch;
  EXPECT_EQ(open_error(scratch.file("none")),
            scratch.file("none") + ": expected a model directory, found nothing");
  EXPECT_EQ(open_error(scratch.path()), scratch.path() +
                                            ": expected model.safetensors or "
                                            "model.safetensors.index.json, found neither");
  ASSERT_TRUE(write_file(scratch.file("f"), "").ok());
  EXPECT_THAT(open_error(scratch.file("f")), HasSubstr("expected a model directory, found a file"));
}

TEST(Checkpoint, ErrorNamesTheBrokenFile) {
  const ScratchDirectory scratch;
  ASSERT_TRUE(write_file(scratch.file("model.safetensors"), "not a checkpoint").ok());
  EXPECT_THAT(open_error(scratch.path()), AllOf(HasSubstr(scratch.file("model.safetensors") + ": "),
                                                HasSubstr("not a valid safetensors file")));
}

TEST(CheckpointIndex, ErrorNamesTheMissingShard) {
  EXPECT_THAT(open_error_with_index(R"({"weight_map": {"a": "three.safetensors"}})"),
              AllOf(HasSubstr("model.safetensors.index.json: "),
                    HasSubstr("three.safetensors: cannot be read: No such file")));
}

TEST(CheckpointIndex, ErrorNamesATensorThatItsShardDoesNotContain) {
  EXPECT_THAT(open_error_with_index(R"({"weight_map": {"a": "two.safetensors"}})"),
              AllOf(HasSubstr("index.json: tensor 'a': expected it in "),
                    HasSubstr("two.safetensors, which does not contain it")));
}

TEST(CheckpointIndex, RefusesATensorInTwoShards) {
  const ScratchDirectory scratch;
  write_shard(scratch.file("one.safetensors"), {"a", "b"});
  write_shard(scratch.file("two.safetensors"), {"b", "c"});
  ASSERT_TRUE(write_file(scratch.file("model.safetensors.index.json"),
                         R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})")
                  .ok());
  EXPECT_THAT(open_error(scratch.path()),
              AllOf(HasSubstr("two.safetensors: tensor 'b': expected it once"),
                    HasSubstr("one.safetensors as well")));
}

TEST(CheckpointIndex, RefusesFilesOutsideTheDirectory) {
  for (const char* file : {"../one.safetensors", "/etc/passwd", "", "..", ".", "sub/x"}) {
    EXPECT_THAT(open_error_with_index(std::string(R"({"weight_map": {"a": ")") + file + "\"}}"),
                HasSubstr("index.json: weight_map.a: expected the name of a file beside the index"))
        << file;
  }
}

TEST(CheckpointIndex, RefusesOtherJson) {
  EXPECT_THAT(open_error_with_index("{"), HasSubstr("index.json:1:1: not valid JSON"));
  EXPECT_THAT(open_error_with_index("{}"), HasSubstr("weight_map: missing; expected an object"));
  EXPECT_THAT(open_error_with_index(R"({"weight_map": []})"), HasSubstr("expected an object"));
  EXPECT_THAT(open_error_with_index(R"({"weight_map": {}})"), HasSubstr("found none"));
  EXPECT_THAT(open_error_with_index(R"({"weight_map": {"a": 1}})"),
              HasSubstr("weight_map.a: expected a string, found 1"));
  EXPECT_THAT(open_error_with_index(R"({"weight_map": {"a": null}})"),
              HasSubstr("weight_map.a: missing"));
  EXPECT_THAT(
      open_error_with_index(R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})"),
      HasSubstr("key 'a' appears twice"));
}

TEST(CheckpointTensor, MissingNameSuggestsTheClosest) {
  const ScratchDirectory scratch;
  write_shard(scratch.file("model.safetensors"), {"layers.0.up_proj", "layers.0.down_proj"});
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->tensor("layers.1.up_proj", {2, 3}).status().message(),
            scratch.path() +
                ": tensor 'layers.1.up_proj' is not among the 2 tensors of the checkpoint; did you "
                "mean 'layers.0.up_proj'?");
  EXPECT_THAT(checkpoint->tensor("x", {2, 3}).status().message(), Not(HasSubstr("did you mean")));
}

// transformers writes such tensors for a model without shared experts.
TEST(CheckpointTensor, WithoutElementsIsNoTensor) {
  const ScratchDirectory scratch;
  const std::vector<float> floats = {1, 2};
  ASSERT_TRUE(tensor_files::write_safetensors(scratch.file("model.safetensors"),
                                              {{"empty", Dtype::kF32, {0, 4}, {}},
                                               {"f", Dtype::kF32, {2, 1}, bytes_of(floats)}})
                  .ok());
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT(checkpoint->names(), testing::ElementsAre("f"));
  EXPECT_FALSE(checkpoint->has("empty"));
}

TEST(CheckpointTensor, ShapeAndDtypeMustMatch) {
  const ScratchDirectory scratch;
  const std::vector<int64_t> integers = {1, 2};
  const std::vector<float> floats = {1, 2};
  ASSERT_TRUE(tensor_files::write_safetensors(scratch.file("model.safetensors"),
                                              {{"i", Dtype::kI64, {2}, bytes_of(integers)},
                                               {"f", Dtype::kF32, {2, 1}, bytes_of(floats)}})
                  .ok());
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok());
  const auto error = [&](const char* name, const std::vector<int64_t>& shape) {
    const Status status = checkpoint->tensor(name, shape).status();
    EXPECT_EQ(status.exit_code(), 2);
    return status.message();
  };
  const std::string file = scratch.file("model.safetensors");
  EXPECT_EQ(error("f", {1, 2}), file + ": tensor 'f': expected shape [1, 2], found [2, 1]");
  EXPECT_EQ(error("f", {2}), file + ": tensor 'f': expected shape [2], found [2, 1]");
  EXPECT_EQ(error("i", {2}), file + ": tensor 'i': expected dtype F32, BF16 or F16, found I64");
}

// The definition of the format: (-1)^s 2^(e-15) (1 + m/1024), and (-1)^s 2^-14 m/1024 for e = 0.
float half_by_definition(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double value = exponent == 0    ? std::ldexp(mantissa, -24)
                 : exponent == 31 ? (mantissa == 0 ? HUGE_VAL : NAN)
                                  : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(bits >> 15 ? -value : value);
}

TEST(ToFloat32, EveryF16) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> out(halves.size());
  to_float32({Dtype::kF16, {65536}, bytes_of(halves)}, out.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = half_by_definition(halves[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(out[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

TEST(ToFloat32, EveryBf16IsTheUpperHalf) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> out(halves.size());
  to_float32({Dtype::kBf16, {65536}, bytes_of(halves)}, out.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), static_cast<uint32_t>(i) << 16) << i;
  }
}

TEST(ToFloat32, BytesNeedNoAlignment) {
  const std::vector<float> values = {1.5f, -2.25f, 1e-40f};
  std::vector<std::byte> shifted(1 + values.size() * sizeof(float));
  std::memcpy(shifted.data() + 1, values.data(), values.size() * sizeof(float));
  std::vector<float> out(values.size());
  to_float32({Dtype::kF32, {3}, std::span(shifted).subspan(1)}, out.data());
  EXPECT_EQ(out, values);
}

TEST(ToFloat32, AcceptsZeroElements) { to_float32({Dtype::kF32, {0}, {}}, nullptr); }

TEST(ToFloat32Death, ChecksTheDtype) {
  float out = 0;
  EXPECT_DEATH(to_float32({Dtype::kI32, {0}, {}}, &out), "is_float");
}

TEST(Checkpoint, DetectsAFileThatChanged) {
  const ScratchDirectory directory;
  const std::string path = directory.path() + "/model.safetensors";
  write_shard(path, {"a", "b"});
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE(checkpoint->check_unchanged().ok());
  write_shard(path, {"a", "b"});  // the same bytes in a new file
  EXPECT_THAT(checkpoint->check_unchanged().message(),
              AllOf(HasSubstr(path), HasSubstr("the file changed while it was read")));
}

}  // namespace
}  // namespace wideep::weights
