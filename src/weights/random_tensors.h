// SPDX-License-Identifier: Apache-2.0
//
// Made-up weights for measuring speed: whatever tensor the loader asks for, it gets, in bf16.
//
// Values are normal, scaled so that a model computes with finite numbers of its usual size and
// tokens spread over the experts:
//   matrices            deviation 1 / √columns; router 2 / √columns; embedding 1
//   vectors             mean 1, deviation 0.1 (norms); biases 0.2 and 0.05
// A tensor's values depend on seed, name and shape only.
//
// Tensors are windows, at places that their names decide, into one run of values per scale: not
// longer than the largest tensor and 2 MiB. So a model larger than memory's half costs no second
// copy of itself, and takes no time to make.
//
// Thread safety: all calls.
#pragma once

#include <deque>
#include <map>
#include <mutex>
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
  Result<const formats::TensorEntry*> tensor(const std::string& name,
                                             const std::vector<int64_t>& shape) const override;

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
  // Guarded by mutex_. The last run of a scale is the longest; earlier ones are its beginnings, and
  // tensors may lie in them.
  mutable std::map<Scale, std::deque<std::vector<Bf16>>> runs_;
  mutable std::map<Key, formats::TensorEntry> entries_;
};

}  // namespace wideep::weights
