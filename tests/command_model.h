// SPDX-License-Identifier: Apache-2.0
//
// For tests of the command: a small model on disk, and copies of it to break.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "tensor_files/safetensors.h"

namespace wideep::tests {

// A small model, made once per program; do not change it. 3 layers, of which 1 and 2 are MoE with
// 16 experts, top 4; a token for each byte, no end token.
const std::string& small_model();

// A private copy of small_model(), for tests that change it.
class ModelCopy {
 public:
  ModelCopy();
  const std::string& path() const { return directory_.path(); }
  std::string file(const std::string& name) const { return directory_.file(name); }

  void write(const std::string& name, const std::string& content) const;
  void remove(const std::string& name) const;
  std::string read(const std::string& name) const;
  void edit_config(const std::function<void(nlohmann::json&)>& edit) const;
  // Passes the tensors, ordered by name, to `edit` and writes the result back.
  void edit_tensors(
      const std::function<void(std::vector<tensor_files::TensorToWrite>&)>& edit) const;

 private:
  base::ScratchDirectory directory_;
};

tensor_files::TensorToWrite& tensor_named(std::vector<tensor_files::TensorToWrite>& tensors,
                                          const std::string& name);

// wideep generate --model <model> --prompt "The cat" <more>, with --max-tokens 4 unless in `more`.
CommandOptions generate(const std::string& model, const std::vector<std::string>& more = {});

}  // namespace wideep::tests
