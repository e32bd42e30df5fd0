// SPDX-License-Identifier: Apache-2.0
//
// GGUF files, versions 2 and 3: a model's metadata and tensors in one file, or in several
// (NAME-00001-of-00003.gguf, …). Files are mapped, not read.
//
//   4 bytes    "GGUF"
//   u32        version
//   u64, u64   number of tensors, number of metadata entries
//   entries    string key, u32 type, value
//   tensors    string name, u32 number of dimensions, u64 each (the fastest first), u32 type,
//              u64 offset
//   the data   begins at a multiple of general.alignment (32 if absent); offsets count from there
//
// All numbers are little endian; a string is a u64 length and its bytes. Source: ggml/docs/gguf.md.
//
// The reader checks everything before it uses it: counts and lengths against the bytes that are
// left, types, duplicate names, sizes that overflow, offsets out of the data, off the alignment or
// over each other. Errors are one line with file, key or tensor, expected and found.
//
// Thread safety: immutable after open and parse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/mapped_file.h"
#include "tensor_files/block_type.h"
#include "wideep/status.h"

namespace wideep::tensor_files {

// A value of the metadata: a scalar, or a list of scalars of one type.
class GgufValue {
 public:
  enum class Type : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kList = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12
  };

  bool is_list() const { return is_list_; }
  Type type() const { return type_; }    // of a list's elements; never kList
  size_t size() const { return size_; }  // of a list; 1: a scalar

  // Element i, or the scalar itself; none if it has another type. REQUIRES: i < size()
  std::optional<int64_t> integer(size_t i = 0) const;  // none for those above 2^63 − 1, too
  std::optional<double> number(size_t i = 0) const;    // floats and integers
  std::optional<bool> boolean(size_t i = 0) const;
  std::optional<std::string_view> text(size_t i = 0) const;

  // "an integer", "a list of 3 texts": for messages.
  std::string describe() const;

 private:
  friend class GgufReader;

  Type type_ = Type::kU8;
  bool is_list_ = false;
  size_t size_ = 1;
  std::span<const std::byte> bytes_;       // of numbers
  std::vector<std::string_view> strings_;  // of texts
};

// A tensor in a mapped file. Valid as long as its GgufFile.
struct GgufTensor {
  BlockType type = BlockType::kF32;
  // The slowest dimension first, as in safetensors: [rows, columns]. A block lies in one row.
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t columns() const { return shape.back(); }
  int64_t num_elements() const;
  size_t row_bytes() const;
};

class GgufFile {
 public:
  using Metadata = std::map<std::string, GgufValue, std::less<>>;
  using Tensors = std::map<std::string, GgufTensor, std::less<>>;

  // Errors (invalid input): file missing or unreadable, or any violation of the format, or a tensor
  // of a type that wideep does not read.
  static Result<GgufFile> open(const std::string& path);
  // The same for bytes in memory, which must outlive the object. Errors name `name`.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  const Tensors& tensors() const { return tensors_; }

  // nullptr: there is none.
  const GgufValue* find(std::string_view key) const;
  // The bytes before the tensors' data.
  std::span<const std::byte> header() const { return header_; }

 private:
  friend class GgufReader;

  std::string path_;
  formats::MappedFile mapping_;  // empty when parsed from memory
  std::span<const std::byte> header_;
  Metadata metadata_;
  Tensors tensors_;
};

// All files of a model. The metadata is that of the first one.
class GgufFiles {
 public:
  // path: the file, or any one of several. Errors (invalid input): as GgufFile::open; a file of the
  // set is missing or another one than its name says, a tensor is in two files, or tensors are
  // missing.
  static Result<GgufFiles> open(const std::string& path);
  // One file that was parsed already.
  explicit GgufFiles(GgufFile file) { files_.push_back(std::move(file)); }

  const GgufFile& first() const { return files_.front(); }
  const std::vector<GgufFile>& files() const { return files_; }

 private:
  GgufFiles() = default;

  std::vector<GgufFile> files_;
};

// Whether the path names a GGUF file: a regular file that begins with "GGUF", or whose name ends
// with ".gguf".
bool is_gguf(const std::string& path);

}  // namespace wideep::tensor_files
