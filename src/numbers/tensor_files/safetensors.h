// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: named tensors in one file, which is mapped, not read.
//
//   8 bytes   header length n, little endian
//   n bytes   JSON: {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//             "__metadata__": {"key": "value"}}
//   the rest  tensor data; offsets count from here
//
// The reader checks everything: header length, JSON, dtype, shape × dtype = bytes, offsets in
// range, no overlap, no hole, no duplicate name. Errors are one line with file, tensor, expected
// and found.
//
// Thread safety: immutable after open and parse.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "formats/mapped_file.h"
#include "wideep/status.h"

namespace wideep::tensor_files {

// A tensor in a mapped file. Valid as long as its SafetensorsFile.
struct TensorEntry {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // row-major, little endian; not necessarily aligned

  int64_t num_elements() const;
};

class SafetensorsFile {
 public:
  // Maps the file read-only and checks its header.
  // Errors (invalid input): file missing or unreadable, or any violation of the format.
  static Result<SafetensorsFile> open(const std::string& path);

  // The same for bytes in memory, which must outlive the object. Errors name `name`.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // nullptr when there is no tensor of that name.
  const TensorEntry* find(const std::string& name) const;

 private:
  SafetensorsFile() = default;

  std::string path_;
  formats::MappedFile mapping_;  // empty when parsed from memory
  std::map<std::string, TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A tensor to be written; the bytes must hold exactly shape × dtype.
struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Writes the whole file or nothing (see AtomicFile). Tensors are sorted by the size of their
// elements, largest first, then by name, and the data begins at a multiple of 8 bytes. So every
// tensor is aligned to its elements, and the file does not depend on the order of `tensors`. Errors
// (failed): disk full or not writable. Errors (invalid input): a name that appears twice or is not
// UTF-8, a negative dimension, bytes that do not match shape × dtype.
Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace wideep::tensor_files
