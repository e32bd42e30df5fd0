// SPDX-License-Identifier: Apache-2.0
//
// Files are built key by key, so that each can lie in one place: a count, a length, a type, an
// offset, an alignment, the name of a part. Every one must be refused in one line, as must every
// truncation of a good file. Bytes are copied to the heap first, where the address sanitizer sees a
// read beyond their end. A failure means that a file from anywhere crashes the server, or that a
// tensor has another's bytes.
#include "tensor_files/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "tensor_files/gguf_testing.h"

namespace wideep::tensor_files {
namespace {

using base::ScratchDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Type = GgufValue::Type;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string error_of(const std::string& bytes) {
  // A copy on the heap, where the sanitizer detects reads past the end.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  const auto parsed = GgufFile::parse(as_bytes({exact.data(), exact.size()}), "m");
  EXPECT_FALSE(parsed.ok());
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().exit_code(), 2);
  EXPECT_THAT(parsed.status().message(), AllOf(HasSubstr("m: "), Not(HasSubstr("\n"))));
  return parsed.status().message();
}

std::string error_of(const GgufBuilder& builder) { return error_of(builder.file()); }

TEST(GgufFile, ReadsMetadataOfEveryType) {
  GgufBuilder builder;
  builder.entry("u8", Type::kU8, "\xff")
      .entry("i8", Type::kI8, "\xff")
      .entry("u16", Type::kU16, GgufBuilder::bytes_of<uint16_t>(65535))
      .entry("i16", Type::kI16, GgufBuilder::bytes_of<int16_t>(-2))
      .integer("u32", 4000000000u)
      .entry("i32", Type::kI32, GgufBuilder::bytes_of<int32_t>(-3))
      .entry("u64", Type::kU64, GgufBuilder::bytes_of<uint64_t>(1ull << 63))
      .entry("i64", Type::kI64, GgufBuilder::bytes_of<int64_t>(-4))
      .number("f32", 0.5f)
      .entry("f64", Type::kF64, GgufBuilder::bytes_of(0.25))
      .boolean("yes", true)
      .string("text", "a\nb")
      .texts("texts", {"x", "", "yz"})
      .list<float>("floats", Type::kF32, {1.0f, 2.0f});
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes = builder.file(version);
    const auto file = GgufFile::parse(as_bytes(bytes), "m");
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->find("u8")->integer(), 255);
    EXPECT_EQ(file->find("i8")->integer(), -1);
    EXPECT_EQ(file->find("u16")->integer(), 65535);
    EXPECT_EQ(file->find("i16")->integer(), -2);
    EXPECT_EQ(file->find("u32")->integer(), 4000000000);
    EXPECT_EQ(file->find("i32")->integer(), -3);
    EXPECT_EQ(file->find("u64")->integer(), std::nullopt);
    EXPECT_EQ(file->find("i64")->number(), -4.0);
    EXPECT_EQ(file->find("f32")->number(), 0.5);
    EXPECT_EQ(file->find("f32")->integer(), std::nullopt);
    EXPECT_EQ(file->find("f64")->number(), 0.25);
    EXPECT_EQ(file->find("yes")->boolean(), true);
    EXPECT_EQ(file->find("yes")->integer(), std::nullopt);
    EXPECT_EQ(file->find("text")->text(), "a\nb");
    EXPECT_EQ(file->find("texts")->size(), 3u);
    EXPECT_EQ(file->find("texts")->text(2), "yz");
    EXPECT_EQ(file->find("texts")->describe(), "a list of 3 texts");
    EXPECT_EQ(file->find("floats")->number(1), 2.0);
    EXPECT_EQ(file->find("u32")->describe(), "an integer");
    EXPECT_EQ(file->find("absent"), nullptr);
  }
}

TEST(GgufFile, ReadsTensors) {
  const std::string q8(2 * 34, '\5');
  GgufBuilder builder;
  builder.floats("a", {3, 2}, {1, 2, 3, 4, 5, 6}).tensor("b", 8, {2, 1, 32}, q8);
  const std::string bytes = builder.file();
  const auto file = GgufFile::parse(as_bytes(bytes), "m");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const GgufTensor& a = file->tensors().at("a");
  EXPECT_EQ(a.type, BlockType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(3, 2));
  EXPECT_EQ(a.bytes.size(), 24u);
  const GgufTensor& b = file->tensors().at("b");
  EXPECT_EQ(b.type, BlockType::kQ8_0);
  EXPECT_THAT(b.shape, ElementsAre(2, 1, 32));
  EXPECT_EQ(b.num_elements(), 64);
  EXPECT_EQ(b.row_bytes(), 34u);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size()), q8);
}

TEST(GgufFile, EveryTruncationIsOneLine) {
  const std::string bytes = GgufBuilder()
                                .integer("n", 1)
                                .texts("t", {"a", "bc"})
                                .list<int32_t>("l", Type::kI32, {1, 2})
                                .floats("a", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})
                                .file();
  for (size_t size = 0; size < bytes.size(); ++size) error_of(bytes.substr(0, size));
  EXPECT_TRUE(GgufFile::parse(as_bytes(bytes), "m").ok());
}

TEST(GgufFile, RefusesOtherFiles) {
  EXPECT_THAT(error_of(std::string("GGML1234")), HasSubstr("begins with 'GGUF'"));
  EXPECT_THAT(error_of(GgufBuilder::header("GGUF", 1, 0, 0)),
              HasSubstr("expected version 2 or 3, found 1"));
  EXPECT_THAT(error_of(GgufBuilder::header("GGUF", 3u << 24, 0, 0)), HasSubstr("big endian"));
  EXPECT_THAT(error_of(std::string("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")),
              HasSubstr("Git LFS"));
}

TEST(GgufFile, RefusesLyingCountsAndLengths) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  EXPECT_THAT(error_of(GgufBuilder::header("GGUF", 3, 0, kHuge)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(GgufBuilder::header("GGUF", 3, kHuge, 0)), HasSubstr("cut short"));
  EXPECT_THAT(error_of(GgufBuilder::header("GGUF", 3, 0, 1) + GgufBuilder::bytes_of(kHuge)),
              HasSubstr("expected 18446744073709551615 bytes of a key"));
  const auto list = [](uint32_t type, uint64_t count) {
    return GgufBuilder().entry("l", Type::kList,
                               GgufBuilder::bytes_of(type) + GgufBuilder::bytes_of(count));
  };
  for (const uint32_t type : {0u, 4u, 8u, 12u}) {
    EXPECT_THAT(error_of(list(type, kHuge)), HasSubstr("l: a list of 18446744073709551615"));
    EXPECT_THAT(error_of(list(type, kHuge / 4)), HasSubstr("is longer than the"));
  }
  EXPECT_THAT(error_of(list(9, 1)), HasSubstr("other than a list, found 9"));
  EXPECT_THAT(error_of(GgufBuilder().entry("k", 13u, "")), HasSubstr("k: expected a type"));
  EXPECT_THAT(error_of(GgufBuilder().entry("k", Type::kBool, "\2")),
              HasSubstr("expected booleans of 0 or 1, found 2"));
  EXPECT_THAT(error_of(GgufBuilder().string("", "x")), HasSubstr("1 to 65535 bytes of a key"));
  EXPECT_THAT(error_of(GgufBuilder().integer("k", 1).integer("k", 2)),
              HasSubstr("k: expected it once, found it twice"));
}

// A large file may have room for any number of empty texts, where its tensors are.
TEST(GgufFile, ListsOfTextsAreBounded) {
  const ScratchDirectory directory;
  const std::string path = directory.path() + "/m.gguf";
  constexpr uint64_t kCount = (uint64_t{1} << 24) + 1;
  const std::string begin =
      GgufBuilder()
          .entry("l", Type::kList, GgufBuilder::bytes_of(8u) + GgufBuilder::bytes_of(kCount))
          .file();
  ASSERT_TRUE(formats::write_file(path, begin).ok());
  std::filesystem::resize_file(path, begin.size() + 8 * kCount);  // zeros that take no room
  const auto file = GgufFile::open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(),
              HasSubstr("l: expected at most 16777216 texts, found 16777217"));
}

TEST(GgufFile, RefusesLyingTensors) {
  const auto tensor = [](uint32_t type, const std::vector<uint64_t>& shape, uint64_t offset = 0) {
    return GgufBuilder()
        .tensor("t", type, {}, std::string(64, '\0'))
        .tensor_at("u", type, shape, offset);
  };
  EXPECT_THAT(error_of(tensor(0, {4})), HasSubstr("expected 1 to 4 dimensions, found 0"));
  const auto only = [](uint32_t type, const std::vector<uint64_t>& shape, uint64_t offset = 0) {
    return GgufBuilder().tensor_at("u", type, shape, offset);
  };
  EXPECT_THAT(error_of(only(0, {1, 1, 1, 1, 1})), HasSubstr("1 to 4 dimensions, found 5"));
  EXPECT_THAT(error_of(only(0, {0})), HasSubstr("dimensions from 1 to 2^63-1, found 0"));
  EXPECT_THAT(error_of(only(0, {1ull << 63})), HasSubstr("found 9223372036854775808"));
  EXPECT_THAT(error_of(only(0, {1ull << 32, 1ull << 31})), HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(error_of(only(12, {1ull << 40, 1ull << 40})), HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(error_of(only(8, {33})), HasSubstr("multiple of 32 elements (Q8_0), found 33"));
  EXPECT_THAT(error_of(only(16, {256})), HasSubstr("type 16 (IQ2_XXS) is not supported"));
  EXPECT_THAT(error_of(only(12345, {256})), HasSubstr("type 12345 (none of ggml's)"));
  EXPECT_THAT(error_of(only(0, {8}, 16)),
              HasSubstr("multiple of 32 (general.alignment), found 16"));
  EXPECT_THAT(error_of(only(0, {8}, ~uint64_t{31})), HasSubstr("cut short"));
  EXPECT_THAT(
      error_of(GgufBuilder().floats("a", {16}, std::vector<float>(16)).tensor_at("b", 0, {1}, 32)),
      HasSubstr("'b': overlaps tensor 'a' at byte 32"));
  EXPECT_THAT(error_of(GgufBuilder().floats("a", {1}, {1}).floats("a", {1}, {2})),
              HasSubstr("'a': expected it once, found it twice"));
}

TEST(GgufFile, ChecksTheAlignment) {
  const auto with = [](uint32_t alignment) {
    return GgufBuilder().integer("general.alignment", alignment).floats("a", {1}, {1});
  };
  for (const uint32_t bad : {0u, 3u, 48u, 1u << 21}) {
    EXPECT_THAT(error_of(with(bad)), HasSubstr("general.alignment: expected a power of two"));
  }
  EXPECT_THAT(error_of(GgufBuilder().string("general.alignment", "32")), HasSubstr("found a text"));
  const std::string bytes = with(8).file();
  EXPECT_TRUE(GgufFile::parse(as_bytes(bytes), "m").ok());
}

// ---- several files ----

GgufBuilder split_file(uint16_t index, uint16_t count) {
  GgufBuilder builder;
  builder.entry("split.no", Type::kU16, GgufBuilder::bytes_of(index))
      .entry("split.count", Type::kU16, GgufBuilder::bytes_of(count))
      .integer("split.tensors.count", 3);
  return builder;
}

class GgufFilesTest : public testing::Test {
 protected:
  std::string path(int number, int count = 3) const {
    return dir_.path() + "/m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) +
           ".gguf";
  }
  void write(int number, const GgufBuilder& builder) {
    ASSERT_TRUE(formats::write_file(path(number), builder.file()).ok());
  }
  void write_all() {
    for (uint16_t i = 0; i < 3; ++i) {
      write(i + 1, split_file(i, 3).floats("t" + std::to_string(i), {1}, {1}));
    }
  }
  std::string error(int number) const {
    const auto files = GgufFiles::open(path(number));
    EXPECT_FALSE(files.ok());
    return files.ok() ? "" : files.status().message();
  }

  ScratchDirectory dir_;
};

TEST_F(GgufFilesTest, AnyOneOpensAll) {
  write_all();
  for (const int number : {1, 2, 3}) {
    const auto files = GgufFiles::open(path(number));
    ASSERT_TRUE(files.ok()) << files.status().message();
    ASSERT_EQ(files->files().size(), 3u);
    EXPECT_EQ(files->first().path(), path(1));
    EXPECT_TRUE(files->files()[2].tensors().contains("t2"));
  }
}

TEST_F(GgufFilesTest, RefusesIncompleteAndMixedSets) {
  write_all();
  std::filesystem::remove(path(2));
  EXPECT_EQ(error(1), path(2) + ": missing: " + path(1) +
                          " says that the model has 3 files; put all of them into one directory");
  // A file that leads back to the first one: no cycle, but another file than its name says.
  std::filesystem::create_symlink(path(1), path(2));
  EXPECT_THAT(error(1),
              HasSubstr("expected file 2 of 3, found (split.no, split.count) file 1 of 3"));
  std::filesystem::remove(path(2));
  write(2, split_file(1, 3).floats("t0", {1}, {1}));
  EXPECT_THAT(error(1), HasSubstr("tensor 't0': expected it once"));
  write(2, split_file(1, 3));
  EXPECT_THAT(error(1),
              HasSubstr("split.tensors.count: expected 3 tensors in the 3 files, found 2"));
}

TEST_F(GgufFilesTest, RefusesNamesAndCountsThatLie) {
  write_all();
  std::filesystem::rename(path(3), path(4, 4));
  const auto renamed = GgufFiles::open(path(4, 4));
  ASSERT_FALSE(renamed.ok());
  EXPECT_THAT(renamed.status().message(),
              HasSubstr("file 3 of 3: expected a name that ends with '-00003-of-00003.gguf'"));
  write(1, split_file(7, 3));
  EXPECT_THAT(error(1), HasSubstr("file 8 of 3"));
  write(1, GgufBuilder().string("split.count", "x"));
  EXPECT_THAT(error(1),
              HasSubstr("split.count: expected an integer from 0 to 65535, found a text"));
}

TEST_F(GgufFilesTest, OneFileNeedsNoName) {
  const std::string path = dir_.path() + "/any";
  ASSERT_TRUE(formats::write_file(path, GgufBuilder().floats("a", {1}, {1}).file()).ok());
  EXPECT_TRUE(is_gguf(path));
  EXPECT_TRUE(GgufFiles::open(path).ok());
  EXPECT_FALSE(is_gguf(dir_.path()));
  EXPECT_TRUE(is_gguf("absent.gguf"));
  EXPECT_FALSE(is_gguf("absent"));
}

}  // namespace
}  // namespace wideep::tensor_files
