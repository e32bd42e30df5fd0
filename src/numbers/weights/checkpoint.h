// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a Hugging Face model directory: model.safetensors, or the shards that
// model.safetensors.index.json names. If both exist, the single file is used. Files are mapped, not
// read: opening is fast, and pages are read when tensors are used. Tensors without elements are
// left out.
//
// Thread safety: immutable after open.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/file_state.h"
#include "tensor_files/safetensors.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

class Checkpoint : public TensorSource {
 public:
  // Errors (invalid input): a missing directory or file, a broken shard, an index that names a
  // tensor which its shard does not contain, a tensor in two shards.
  static Result<Checkpoint> open(const std::string& model_dir);

  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape) const override;

  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const Dtype> dtypes) const override;

  const tensor_files::TensorEntry* find(const std::string& name) const override;
  // Compares the files' sizes, modification times and inodes.
  Status check_unchanged() const override;
  // The same however the tensors are spread over shards.
  std::string fingerprint() const override;
  // "file: tensor 'name'". REQUIRES: the tensor exists.
  std::string where(const std::string& name) const override;

  std::vector<std::string> names() const;
  // 0 if there is no such tensor.
  uint64_t tensor_bytes(const std::string& name) const;
  uint64_t total_bytes() const;  // of all tensors

 private:
  Status missing(const std::string& name) const;

  std::string model_dir_;
  std::vector<tensor_files::SafetensorsFile> shards_;
  std::vector<formats::FileState> states_;  // states of the shards when they were opened
  struct Location {
    size_t shard;
    const tensor_files::TensorEntry* entry;
  };
  std::map<std::string, Location> tensors_;
};

// Converts elements [first_element, first_element + count) of a tensor to float32.
// REQUIRES: dtype F32, BF16 or F16; the elements exist; out has room for `count`.
void to_float32(const tensor_files::TensorEntry& entry, int64_t first_element, int64_t count,
                float* out);
// Converts all elements.
inline void to_float32(const tensor_files::TensorEntry& entry, float* out) {
  to_float32(entry, 0, entry.num_elements(), out);
}

}  // namespace wideep::weights
