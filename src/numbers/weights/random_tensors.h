// SPDX-License-Identifier: Apache-2.0
//
// Random weights for measuring speed: every tensor that the loader asks for exists, in bf16.
//
// Values are about normally distributed. Their scales keep activations finite and of usual size,
// and make the router spread tokens over the experts:
//   matrices            deviation 1 / √columns; router 2 / √columns; embedding 1
//   vectors             mean 1, deviation 0.1 (norms); biases 0.2 and 0.05
// A tensor's values depend on seed, name and shape only.
//
// For each scale there is one array of values, as long as the largest tensor plus 2 MiB. A tensor
// is a window into it, at an offset that depends on its name. So random weights take little memory
// and time even for a model that fills most of the memory.
//
// Thread safety: all calls.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "weights/tensor_source.h"

namespace wideep::weights {

class RandomTensors : public TensorSource {
 public:
  explicit RandomTensors(uint64_t seed) : seed_(seed) {}

  using TensorSource::tensor;
  // Never fails. REQUIRES: every extent is at least 1.
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape) const override;
  // Where I64 is among the dtypes: 0, 1, … in each row, which are numbers of any range with as many.
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const Dtype> dtypes) const override;

  std::string fingerprint() const override;

 private:
  struct Scale {
    float mean = 0.0f;
    float deviation = 1.0f;
    auto operator<=>(const Scale&) const = default;
  };
  using Key = std::pair<std::string, std::vector<int64_t>>;

  static Scale scale_of(const std::string& name, const std::vector<int64_t>& shape);
  const std::vector<Bf16>& values(const Scale& scale, size_t count) const;

  uint64_t seed_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. The last array of a scale is the longest. Earlier ones hold the same values
  // up to their length and are kept, because tensors refer to them.
  mutable std::map<Scale, std::deque<std::vector<Bf16>>> runs_;
  mutable std::map<Key, tensor_files::TensorEntry> entries_;
  mutable std::deque<std::vector<int64_t>> integers_;
};

}  // namespace wideep::weights
