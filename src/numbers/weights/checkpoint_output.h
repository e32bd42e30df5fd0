// SPDX-License-Identifier: Apache-2.0
//
// Writes the directory of a checkpoint: shards, config.json.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/new_directories.h"
#include "kernels/weight_format.h"
#include "weights/quantized_tensors.h"
#include "wideep/status.h"

namespace wideep::weights {

// Creates the output directory; without files it is removed with the result. Errors (invalid
// input): it is not empty.
Result<formats::NewDirectories> make_output(const std::string& dir);

// Removes what a failed run has written, and says so: it is no model, but may fill the disk. The
// directory was empty.
Status without_files(const Status& why, const std::string& dir);

// Writes tensors to files of limited size. The names of shards contain the number of shards, which
// is known only at the end: so files get temporary names first.
class ShardWriter {
 public:
  ShardWriter(std::string dir, uint64_t shard_bytes)
      : dir_(std::move(dir)), shard_bytes_(shard_bytes) {}

  Status add(NamedTensor tensor);
  // A single file becomes model.safetensors; several get numbers and an index.
  Status finish();

  uint64_t total_bytes() const { return total_; }

 private:
  static std::string part(size_t i);
  Status rename(const std::string& from, const std::string& to);
  Status flush();

  std::string dir_;
  uint64_t shard_bytes_, held_ = 0, total_ = 0;
  std::vector<NamedTensor> tensors_;
  std::vector<std::vector<std::string>> names_;  // tensors of each file
};

// Writes config.json with a quantization_config, and what else says the same. ignored: modules
// that are not quantised.
Status write_config(const std::string& dir, kernels::WeightFormat format,
                    nlohmann::ordered_json config, int group,
                    const std::vector<std::string>& ignored);

}  // namespace wideep::weights
