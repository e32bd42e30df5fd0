// SPDX-License-Identifier: Apache-2.0
//
// The tensors of GGUF files under the names of this house, as transformers has them. What
// llama.cpp's converters have rearranged is undone when rows are read (weights/block_matrix.h):
//
//   architectures          what was rearranged
//   llama, granitemoe,
//   granitehybrid          rows of queries and keys, so that rotated pairs are neighbours
//   deepseek2, …           kv_b is cut into keys, transposed, and values
//   qwen3next, qwen35moe   norms hold 1 + weight; A_log holds −exp; queries, keys, values and gates
//                          lie apart; qwen35moe: value heads lie side by side, not by key head
//   granitehybrid,
//   kimi-linear            A_log holds −exp
//   bailingmoe3            A_log holds exp
//   all                    experts in one tensor; at the converter's option gate and up in one, and
//                          queries, keys and values in one
//
// Thread safety: all calls.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "formats/file_state.h"
#include "model/config/config.h"
#include "model/gguf/gguf_names.h"
#include "tensor_files/gguf.h"
#include "weights/block_matrix.h"
#include "weights/row_source.h"
#include "weights/tensor_source.h"

namespace wideep::model {

class GgufTensors : public weights::TensorSource, public weights::RowSources {
 public:
  // Opens the files and compares their tensors with the config. Appends to config->notes: tensors
  // that are not used. Errors (invalid input): as GgufFiles::open; a tensor that is missing or has
  // another shape than the config says, or that the metadata leave out and that would change
  // results.
  static Result<std::unique_ptr<GgufTensors>> open(const std::string& path, ModelConfig* config);
  // The same without the comparison.
  static Result<std::unique_ptr<GgufTensors>> reopen(const std::string& path,
                                                     const ModelConfig& config);

  // As open(), for files that are open.
  static Result<std::unique_ptr<GgufTensors>> of(tensor_files::GgufFiles files,
                                                 ModelConfig* config);

  const tensor_files::GgufFiles& files() const { return files_; }
  // Whether the form has the values of this matrix.
  bool holds(const std::string& name, const weights::MatrixForm& form) const;
  // "Q4_K"; "": missing.
  std::string type_of(const std::string& name) const;

  // ---- TensorSource: vectors, as slices of floats ----

  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape) const override;
  // A table of I32, if that is one of the dtypes.
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const Dtype> dtypes) const override;
  Result<weights::TensorSlice> slice(const std::string& name,
                                     const std::vector<int64_t>& shape) const override;
  const weights::RowSources* row_sources() const override { return this; }
  Status check_unchanged() const override;
  std::string fingerprint() const override;
  std::string where(const std::string& name) const override;

  // ---- RowSources: matrices ----

  Result<std::shared_ptr<const weights::RowSource>> open_rows(const std::string& name, int n,
                                                              int k) const override;
  weights::MatrixForm form_of(const std::vector<std::string>& names) const override;
  std::vector<std::string> names_of(const std::string& name) const override;

  // The bytes of the files that loading this tensor reads: of tensors that hold several, its share.
  uint64_t bytes_of(const std::string& name, int64_t num_elements) const;

 private:
  struct Located {
    std::vector<std::string> names;  // of the file
    std::vector<const tensor_files::GgufTensor*> tensors;
    bool of_all_experts = false;
    // What the tensors are, beside a tensor of the asked name.
    enum class Kind { kPlain, kQkv, kGateUp, kDeltaInput, kKeyValueB } kind = Kind::kPlain;
  };

  GgufTensors(tensor_files::GgufFiles files, const ModelConfig& config, bool moves_rotated_rows);

  // As BlockRows::column_step of this matrix; 0: columns are as stored.
  int column_step(const TensorName& name) const;
  const tensor_files::GgufTensor* find_gguf(const std::string& name) const;
  Located locate(const TensorName& name) const;
  Status match(ModelConfig* config) const;
  std::string where_of(const Located& located, const std::string& name) const;

  Result<weights::BlockRows> rows_of(const TensorName& name, const Located& located, int n,
                                     int k) const;
  // The order of rows; empty: as stored.
  std::vector<int32_t> row_order(const TensorName& name, int n) const;
  Result<const tensor_files::TensorEntry*> converted(const std::string& name,
                                                     const TensorName& parsed,
                                                     const Located& located, int64_t size) const;

  tensor_files::GgufFiles files_;
  std::vector<formats::FileState> states_;
  ModelConfig config_;
  bool moves_rotated_rows_;

  // Vectors whose values differ from the files'.
  struct Converted {
    std::vector<float> values;
    tensor_files::TensorEntry entry;
  };
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<Converted>> converted_;
};

}  // namespace wideep::model
