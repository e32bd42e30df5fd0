// SPDX-License-Identifier: Apache-2.0
//
// A file written out byte by byte says what reader and writer must agree on, and the writer must
// give the bytes of Hugging Face's library for every golden model. Most tests are of headers that
// lie: lengths, shapes whose product wraps around to the right size, offsets with overlaps or
// holes. Bytes are copied to the heap first, where the address sanitizer sees a read beyond their
// end. A failure means that a damaged file is served as a model.
#include "tensor_files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::tensor_files {
namespace {

using base::ScratchDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string with_length(uint64_t length, std::string_view rest) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return file + std::string(rest);
}

std::string file_of(std::string_view header, std::string_view data = "") {
  return with_length(header.size(), std::string(header) + std::string(data));
}

std::string error_of(std::string_view file) {
  // A copy on the heap, where the sanitizer detects reads past the end.
  const std::vector<char> exact(file.begin(), file.end());
  const auto parsed = SafetensorsFile::parse(as_bytes({exact.data(), exact.size()}), "m");
  EXPECT_FALSE(parsed.ok()) << file;
  EXPECT_EQ(parsed.status().exit_code(), 2);
  EXPECT_THAT(parsed.status().message(), AllOf(HasSubstr("m: "), Not(HasSubstr("\n"))));
  return parsed.status().message();
}

// A file with 4 bytes of data and one U8 tensor "t", whose header member has these parts.
std::string error_of_tensor(const std::string& dtype, const std::string& shape,
                            const std::string& offsets) {
  return error_of(file_of(
      R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
      "abcd"));
}

// Every byte written out: header length 0x70, then the header, then -2.0 and 3 as BF16 and 7 as U8.
constexpr std::string_view kGolden(
    "\x70\0\0\0\0\0\0\0"
    "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
    "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[4,5]}}"
    "   "
    "\x00\xc0\x40\x40"
    "\x07",
    8 + 0x70 + 5);

TEST(SafetensorsRead, GoldenBytes) {
  const auto file = SafetensorsFile::parse(as_bytes(kGolden), "m");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 2u);
  const TensorEntry* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, Dtype::kBf16);
  EXPECT_THAT(b->shape, ElementsAre(2, 1));
  EXPECT_EQ(b->num_elements(), 2);
  EXPECT_EQ(as_text(b->bytes), std::string_view("\x00\xc0\x40\x40", 4));
  EXPECT_EQ(as_text(file->find("a")->bytes), "\x07");
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_TRUE(file->metadata().empty());
}

TEST(SafetensorsRead, MetadataEmptyTensorsScalarsAndEscapedNames) {
  const std::string bytes =
      file_of(R"({"__metadata__":{"format":"pt","x":""},)"
              R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},)"
              R"("s\u0063alar":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
              "abcd");
  const auto file = SafetensorsFile::parse(as_bytes(bytes), "m");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->find("empty")->num_elements(), 0);
  EXPECT_EQ(file->find("scalar")->num_elements(), 1);
}

TEST(SafetensorsRead, NoTensorsAtAll) {
  const std::string bytes = file_of("{}");
  EXPECT_TRUE(SafetensorsFile::parse(as_bytes(bytes), "m").ok());
}

TEST(SafetensorsRead, RefusesBadHeaderLengths) {
  EXPECT_THAT(error_of(""), HasSubstr("expected at least 8 bytes, found 0"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("found 7"));
  EXPECT_THAT(error_of(with_length(0, "")), HasSubstr("begins with '{'"));
  EXPECT_THAT(error_of(with_length(3, "{}")), HasSubstr("at most 2 bytes"));
  EXPECT_THAT(error_of(with_length(uint64_t{1} << 63, "{}")), HasSubstr("9223372036854775808"));
  EXPECT_THAT(error_of(with_length(UINT64_MAX, "{}")), HasSubstr("18446744073709551615"));
  EXPECT_THAT(error_of(with_length(UINT64_MAX - 7, "{}")), HasSubstr("at most 2 bytes"));
}

TEST(SafetensorsRead, RefusesHeadersThatAreNotOneObject) {
  EXPECT_THAT(error_of(file_of("[]")), HasSubstr("begins with '{'"));
  EXPECT_THAT(error_of(file_of(" {}")), HasSubstr("begins with '{'"));
  EXPECT_THAT(error_of(file_of("{}{}")), HasSubstr("m: header:1:3: not valid JSON"));
  EXPECT_THAT(error_of(file_of("{\"a\":")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(file_of("{\"\xff\":1}")), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of(file_of("{\"a\":" + std::string(1'000'000, '['))),
              HasSubstr("nested deeper"));
  EXPECT_THAT(error_of(file_of(std::string("{}\0", 3))), HasSubstr("zero byte"));
}

TEST(SafetensorsRead, RefusesANameTwice) {
  EXPECT_THAT(error_of(file_of(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                               R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                               "ab")),
              HasSubstr("key 't' appears twice"));
}

TEST(SafetensorsRead, RefusesBadDtypes) {
  for (const char* dtype : {"\"U9\"", "\"f32\"", "\"\"", "1", "null", "[\"U8\"]"}) {
    EXPECT_THAT(error_of_tensor(dtype, "[4]", "[0,4]"),
                AllOf(HasSubstr("m: tensor 't': expected a known dtype"), HasSubstr("found")))
        << dtype;
  }
}

TEST(SafetensorsRead, RefusesBadShapes) {
  for (const char* shape : {"[-4]", "[4.0]", "[\"4\"]", "[null]", "[[4]]", "[true]",
                            "[9223372036854775808]", "[18446744073709551616]"}) {
    EXPECT_THAT(error_of_tensor("\"U8\"", shape, "[0,4]"),
                HasSubstr("m: tensor 't': shape: expected integers from 0 to 2^63-1, found"))
        << shape;
  }
  EXPECT_THAT(error_of_tensor("\"U8\"", "4", "[0,4]"), HasSubstr("shape: expected a list"));
}

TEST(SafetensorsRead, RefusesShapesThatDoNotMatchTheBytes) {
  EXPECT_EQ(error_of_tensor("\"U8\"", "[3]", "[0,4]"),
            "m: tensor 't': expected 3 bytes for shape [3] of U8, found data_offsets of 4 bytes");
  EXPECT_THAT(error_of_tensor("\"F32\"", "[2]", "[0,4]"), HasSubstr("expected 8 bytes"));
  // Products that wrap around to 4 in 64 bits.
  EXPECT_THAT(error_of_tensor("\"U8\"", "[4611686018427387905,4]", "[0,4]"),
              HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(error_of_tensor("\"F32\"", "[4611686018427387905]", "[0,4]"),
              HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(error_of_tensor("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"),
              HasSubstr("more than 2^63 bytes"));
}

TEST(SafetensorsRead, RefusesOffsetsOutsideTheData) {
  for (const char* offsets :
       {"[0,5]", "[4,0]", "[5,9]", "[4,3]", "[9223372036854775807,3]", "[0,9223372036854775807]"}) {
    EXPECT_THAT(error_of_tensor("\"U8\"", "[4]", offsets),
                HasSubstr("m: tensor 't': data_offsets: expected begin <= end <= 4"))
        << offsets;
  }
  for (const char* offsets : {"[]", "[0]", "[0,2,4]"}) {
    EXPECT_THAT(error_of_tensor("\"U8\"", "[4]", offsets), HasSubstr("expected 2 numbers"));
  }
  for (const char* offsets : {"[-1,3]", "[0.0,4]", "[0,18446744073709551616]"}) {
    EXPECT_THAT(error_of_tensor("\"U8\"", "[4]", offsets), HasSubstr("data_offsets: expected int"));
  }
}

TEST(SafetensorsRead, RefusesMissingOrMalformedMembers) {
  EXPECT_THAT(error_of(file_of(R"({"t":{"shape":[4],"data_offsets":[0,4]}})", "abcd")),
              HasSubstr("m: tensor 't': 'dtype' is missing"));
  EXPECT_THAT(error_of(file_of(R"({"t":{"dtype":"U8","data_offsets":[0,4]}})", "abcd")),
              HasSubstr("'shape' is missing"));
  EXPECT_THAT(error_of(file_of(R"({"t":{"dtype":"U8","shape":[4]}})", "abcd")),
              HasSubstr("'data_offsets' is missing"));
  EXPECT_THAT(error_of(file_of(R"({"t":[]})")), HasSubstr("expected an object, found a list"));
  EXPECT_THAT(error_of(file_of(R"({"__metadata__":[]})")), HasSubstr("__metadata__: expected an"));
  EXPECT_THAT(error_of(file_of(R"({"__metadata__":{"x":1}})")),
              HasSubstr("__metadata__.x: expected a string, found 1"));
}

std::string two_tensors(const std::string& first, const std::string& second,
                        const std::string& sizes) {
  return R"({"p":{"dtype":"U8","shape":[)" + sizes.substr(0, 1) + R"(],"data_offsets":)" + first +
         R"(},"q":{"dtype":"U8","shape":[)" + sizes.substr(1) + R"(],"data_offsets":)" + second +
         "}}";
}

TEST(SafetensorsRead, RefusesOverlapsHolesAndLeftovers) {
  EXPECT_THAT(error_of(file_of(two_tensors("[0,3]", "[2,4]", "32"), "abcd")),
              HasSubstr("m: tensor 'q': overlap at byte 2 of the data"));
  EXPECT_THAT(error_of(file_of(two_tensors("[0,4]", "[0,4]", "44"), "abcd")),
              HasSubstr("overlap at byte 0"));
  EXPECT_THAT(error_of(file_of(two_tensors("[0,1]", "[2,4]", "12"), "abcd")),
              HasSubstr("m: tensor 'q': hole at byte 1 of the data"));
  EXPECT_THAT(error_of(file_of(two_tensors("[1,2]", "[2,4]", "12"), "abcd")),
              HasSubstr("m: tensor 'p': hole at byte 0"));
  EXPECT_THAT(error_of(file_of(two_tensors("[0,1]", "[1,3]", "12"), "abcd")),
              HasSubstr("expected 3 bytes of data after the header"));
  EXPECT_THAT(error_of(file_of("{}", "x")), HasSubstr("expected 0 bytes of data"));
  // An empty tensor inside another one.
  EXPECT_THAT(error_of(file_of(two_tensors("[0,4]", "[2,2]", "40"), "abcd")), HasSubstr("overlap"));
}

TEST(SafetensorsRead, EveryCutOfAGoodFileIsRefused) {
  for (size_t size = 0; size < kGolden.size(); ++size) error_of(kGolden.substr(0, size));
}

TEST(SafetensorsOpen, RefusesMissingFilesAndDirectories) {
  const ScratchDirectory scratch;
  const auto error = [](const std::string& path) {
    return SafetensorsFile::open(path).status().message();
  };
  EXPECT_THAT(error(scratch.file("none")), HasSubstr("none: cannot be read: No such file"));
  EXPECT_THAT(error(scratch.path()), HasSubstr("not a regular file"));
  ASSERT_TRUE(formats::write_file(scratch.file("empty"), "").ok());
  EXPECT_THAT(error(scratch.file("empty")), HasSubstr("expected at least 8 bytes, found 0"));
}

TEST(SafetensorsOpen, MappingOutlivesMoves) {
  const ScratchDirectory scratch;
  ASSERT_TRUE(formats::write_file(scratch.file("m"), kGolden).ok());
  auto opened = SafetensorsFile::open(scratch.file("m"));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const TensorEntry* entry = opened->find("a");
  const SafetensorsFile moved = std::move(opened).value();
  EXPECT_EQ(moved.find("a"), entry);
  EXPECT_EQ(as_text(entry->bytes), "\x07");
  EXPECT_EQ(moved.path(), scratch.file("m"));
}

TEST(SafetensorsWrite, GoldenBytes) {
  const ScratchDirectory scratch;
  const Status status = write_safetensors(
      scratch.file("m"), {{"a", Dtype::kU8, {1}, as_bytes("\x07")},
                          {"b", Dtype::kBf16, {2, 1}, as_bytes(kGolden.substr(8 + 0x70, 4))}});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(*formats::read_file(scratch.file("m")), kGolden);
}

TEST(SafetensorsWrite, ReadsBackWithMetadata) {
  const ScratchDirectory scratch;
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"quote\"", "\n\xc3\xa9"}};
  ASSERT_TRUE(write_safetensors(scratch.file("m"),
                                {{"odd", Dtype::kU8, {3}, as_bytes("abc")},
                                 {"wide\n", Dtype::kI64, {1}, as_bytes("12345678")},
                                 {"none", Dtype::kF32, {0, 7}, {}}},
                                metadata)
                  .ok());
  const auto file = SafetensorsFile::open(scratch.file("m"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata(), metadata);
  EXPECT_EQ(as_text(file->find("odd")->bytes), "abc");
  EXPECT_EQ(as_text(file->find("wide\n")->bytes), "12345678");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->find("wide\n")->bytes.data()) % 8, 0u);
  EXPECT_EQ(file->find("none")->num_elements(), 0);
}

TEST(SafetensorsWrite, OrderOfTheArgumentDoesNotMatter) {
  const ScratchDirectory scratch;
  std::vector<TensorToWrite> tensors = {{"x", Dtype::kU8, {2}, as_bytes("xx")},
                                        {"y", Dtype::kU8, {1}, as_bytes("y")},
                                        {"z", Dtype::kF16, {1}, as_bytes("zz")}};
  ASSERT_TRUE(write_safetensors(scratch.file("one"), tensors).ok());
  std::reverse(tensors.begin(), tensors.end());
  ASSERT_TRUE(write_safetensors(scratch.file("two"), tensors).ok());
  EXPECT_EQ(*formats::read_file(scratch.file("one")), *formats::read_file(scratch.file("two")));
}

TEST(SafetensorsWrite, RefusesTensorsThatTheReaderWouldRefuse) {
  const ScratchDirectory scratch;
  const auto error = [&](const std::vector<TensorToWrite>& tensors) {
    const Status status = write_safetensors(scratch.file("m"), tensors);
    EXPECT_EQ(status.exit_code(), 2);
    return status.message();
  };
  const auto four = as_bytes("abcd");
  EXPECT_THAT(error({{"t", Dtype::kU8, {3}, four}}),
              HasSubstr("m: tensor 't': expected shape [3] of U8 to be 3 bytes, found 4 bytes"));
  EXPECT_THAT(error({{"t", Dtype::kU8, {-4}, four}}), HasSubstr("[-4]"));
  EXPECT_THAT(error({{"t", Dtype::kU8, {4}, four}, {"t", Dtype::kU8, {4}, four}}),
              HasSubstr("tensor 't': the name is used twice or reserved"));
  EXPECT_THAT(error({{"__metadata__", Dtype::kU8, {4}, four}}),
              HasSubstr("the name is used twice or reserved"));
  EXPECT_THAT(error({{"\xff", Dtype::kU8, {4}, four}}), HasSubstr("is not UTF-8"));
  EXPECT_EQ(scratch.num_files(), 0);
}

TEST(SafetensorsWrite, FullDiskIsOneClearLineAndLeavesNothing) {
  const ScratchDirectory scratch;
  if (::mount("tmpfs", scratch.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "cannot mount a small file system here: " << std::strerror(errno);
  }
  const std::string data(200'000, 'x');
  const Status status =
      write_safetensors(scratch.file("m"), {{"t", Dtype::kU8, {200'000}, as_bytes(data)}});
  const int num_files = scratch.num_files();
  ::umount2(scratch.path().c_str(), MNT_DETACH);
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("m: cannot be written: No space left"), Not(HasSubstr("\n"))));
  EXPECT_EQ(num_files, 0);
}

// The golden file was written by Hugging Face's library (tests/golden/README.md).
TEST(SafetensorsWrite, WritesTheBytesOfHuggingFacesLibrary) {
  const ScratchDirectory scratch;
  for (const auto& model :
       std::filesystem::directory_iterator(WIDEEP_SOURCE_DIR "/tests/golden/models")) {
    const std::string path = (model.path() / "model.safetensors").string();
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, entry] : file->tensors()) {
      tensors.push_back({name, entry.dtype, entry.shape, entry.bytes});
    }
    ASSERT_TRUE(write_safetensors(scratch.file("m"), tensors, file->metadata()).ok());
    EXPECT_TRUE(*formats::read_file(scratch.file("m")) == *formats::read_file(path)) << path;
  }
}

// As a clone without Git LFS leaves them.
TEST(Safetensors, GitLfsPointerIsNamedAsSuch) {
  const base::ScratchDirectory scratch;
  const std::string path = scratch.file("model.safetensors");
  ASSERT_TRUE(formats::write_file(
                  path,
                  "version https://git-lfs.github.com/spec/v1\n"
                  "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                  "size 12345\n")
                  .ok());
  const std::string expected = path +
                               ": expected the file, found a Git LFS pointer to it; get it with "
                               "'git lfs pull', or download it again";
  EXPECT_EQ(SafetensorsFile::open(path).status().message(), expected);
  EXPECT_EQ(formats::read_file(path).status().message(), expected);
}

}  // namespace
}  // namespace wideep::tensor_files
