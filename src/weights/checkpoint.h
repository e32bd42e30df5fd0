// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a Hugging Face model directory: model.safetensors, or the shards that
// model.safetensors.index.json names (the single file wins when both are there). Files are mapped,
// not read: opening is quick, pages come in as tensors are touched.
//
// Thread safety: immutable after open.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

class Checkpoint : public TensorSource {
 public:
  // Errors (invalid input): directory or file missing, a broken shard, an index that names a tensor
  // its shard does not have, a tensor in two shards.
  static Result<Checkpoint> open(const std::string& model_dir);

  Result<const formats::TensorEntry*> tensor(const std::string& name,
                                             const std::vector<int64_t>& shape) const override;

  Result<const formats::TensorEntry*> tensor(const std::string& name,
                                             const std::vector<int64_t>& shape,
                                             std::span<const Dtype> dtypes) const override;

  const formats::TensorEntry* find(const std::string& name) const override;
  // By the files' sizes, times and identities.
  Status check_unchanged() const override;
  // "file: tensor 'name'". REQUIRES: there is such a tensor.
  std::string where(const std::string& name) const override;

  std::vector<std::string> names() const;
  // 0 when there is no such tensor.
  uint64_t tensor_bytes(const std::string& name) const;
  uint64_t total_bytes() const;  // of all tensors

 private:
  Status missing(const std::string& name) const;

  // What tells one state of a file from another.
  struct FileState {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t bytes = -1;  // −1: no such file
    int64_t modified_ns = 0;
    bool operator==(const FileState&) const = default;
  };
  static FileState state_of(const std::string& path);

  std::string model_dir_;
  std::vector<formats::SafetensorsFile> shards_;
  std::vector<FileState> states_;  // of the shards, when they were opened
  struct Location {
    size_t shard;
    const formats::TensorEntry* entry;
  };
  std::map<std::string, Location> tensors_;
};

// `count` of a tensor's elements, from the first_element-th, as float32, whatever its stored dtype.
// REQUIRES: F32, BF16 or F16; the tensor has them; out holds `count`.
void to_float32(const formats::TensorEntry& entry, int64_t first_element, int64_t count,
                float* out);
// All of them.
inline void to_float32(const formats::TensorEntry& entry, float* out) {
  to_float32(entry, 0, entry.num_elements(), out);
}

}  // namespace wideep::weights
