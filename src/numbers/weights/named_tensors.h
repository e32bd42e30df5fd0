// SPDX-License-Identifier: Apache-2.0
//
// A model's published files under canonical names: answers what the model asks for from tensors
// that the files call otherwise, or hold as a part of a larger tensor (tensor_names.h).
//
//   const NamedTensors tensors(checkpoint, checkpoint.names(), names, num_experts);
//   tensors.slice("model.layers.0.mlp.experts.3.up_proj.bias", {n});
//
// Of the tensors that a name may mean, the first one that the files have is used; if they have
// none, messages name the first one. All messages name the published tensor. A name of the files
// that is no canonical name means itself.
//
// A published tensor may have more or fewer extents of 1 than the asked one: [1, n] for [n], or
// [n, 1, k] for [n, k]. A part of it must have the exact shape.
//
// Thread safety: immutable.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weights/tensor_names.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

class NamedTensors : public TensorSource {
 public:
  // files: must outlive the object. file_names: of all tensors of the files, which determine the
  // prefix. num_experts: the first dimension of tensors that hold all experts. declared: of all
  // modules.
  NamedTensors(const TensorSource& files, std::span<const std::string> file_names,
               TensorNames names, int num_experts, DeclaredLayout declared = {});

  // Only tensors that the files hold on their own. Errors (invalid input): a part of another
  // tensor.
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape) const override;
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const Dtype> dtypes) const override;

  Result<TensorSlice> slice(const std::string& name,
                            const std::vector<int64_t>& shape) const override;
  StoredModule module(const std::string& module) const override;

  // The published tensor; all of it, if the asked one is a part.
  const tensor_files::TensorEntry* find(const std::string& name) const override;
  Status check_unchanged() const override { return files_.check_unchanged(); }
  std::string fingerprint() const override { return files_.fingerprint(); }
  // "file: tensor 'published name', expert 3"
  std::string where(const std::string& name) const override;

  // The name in the files.
  std::string published_name(const std::string& name) const;
  // The name in the files if they hold the tensor on its own, or else the one that it would have
  // there.
  std::string own_name(const std::string& name) const;
  // Whether this tensor of the files may be one of the model, not of another part of a larger one.
  bool has_prefix(const std::string& file_name) const {
    return !prefix_ || file_name.starts_with(prefix_->second);
  }

 private:
  // The tensors that may hold `name`, with the prefix.
  std::vector<PublishedTensor> candidates(const std::string& name) const;
  // The first of them that the files have, or else the first.
  PublishedTensor choose(const std::string& name) const;
  // The name of a tensor that is not a part of a larger one in the files.
  Result<std::string> whole_name(const std::string& name) const;
  StoredModule stored(const PublishedTensor& tensor) const;
  Result<TensorSlice> whole(const PublishedTensor& tensor, const std::vector<int64_t>& shape) const;
  Result<TensorSlice> part(const PublishedTensor& tensor, const std::vector<int64_t>& shape) const;

  const TensorSource& files_;
  TensorNames names_;
  std::optional<TensorNames::Prefix> prefix_;
  int num_experts_;
  DeclaredLayout declared_;
};

}  // namespace wideep::weights
