// SPDX-License-Identifier: Apache-2.0
//
// Any bytes must give a one-line error, or a model of which every tensor that loading asks for is a
// one-line error or values within the file.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "model/gguf/gguf_config.h"
#include "model/gguf/gguf_tensors.h"
#include "model/tensor_list.h"
#include "tensor_files/gguf.h"
#include "weights/weight_loader.h"

using namespace wideep;  // NOLINT: a program of its own

namespace {

void expect_one_line(const Status& status) {
  WIDEEP_CHECK_EQ(status.exit_code(), 2);
  WIDEEP_CHECK_EQ(status.message().find('\n'), std::string::npos);
}

// Small models only: the others have as many tensors as their numbers say, and loading takes as
// long as they are large.
bool is_small(const model::ModelConfig& config) {
  return config.num_all_layers() <= 4 && config.routing.num_experts <= 4 &&
         config.hidden_size <= 256 && config.moe_intermediate_size <= 64 &&
         config.vocab_size <= 64 && config.num_heads <= 8 && config.num_kv_heads <= 8 &&
         config.head_dim <= 64 && config.dense_intermediate_size <= 64 &&
         config.shared_intermediate_size <= 64 && config.q_lora_rank <= 64 &&
         config.kv_lora_rank <= 64 && config.v_head_dim <= 64 &&
         std::ranges::all_of(config.other_kinds, [](const model::AttentionKind& kind) {
           return kind.num_heads <= 8 && kind.num_kv_heads <= 8 && kind.head_dim <= 64;
         });
}

void load(const weights::TensorSource& source, const model::ListedTensor& tensor) {
  const weights::WeightLoader loader(source, {});
  const auto floats = loader.floats(tensor.name, tensor.shape);
  if (!floats.ok()) return expect_one_line(floats.status());
  WIDEEP_CHECK_EQ(static_cast<int64_t>(floats->size()), tensor.num_elements());
  if (tensor.shape.size() != 2) return;
  const auto matrix = loader.matrix(tensor.name, static_cast<int>(tensor.shape[0]),
                                    static_cast<int>(tensor.shape[1]));
  if (!matrix.ok()) return expect_one_line(matrix.status());
  const Status packed = loader.run();
  if (!packed.ok()) expect_one_line(packed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  auto file = tensor_files::GgufFile::parse(bytes, "fuzz");
  if (!file.ok()) {
    expect_one_line(file.status());
    return 0;
  }
  tensor_files::GgufFiles files(std::move(*file));
  auto config = model::read_gguf_config(files);
  if (!config.ok()) {
    expect_one_line(config.status());
    return 0;
  }
  if (!is_small(*config)) return 0;
  const auto tensors = model::GgufTensors::of(std::move(files), &*config);
  if (!tensors.ok()) {
    expect_one_line(tensors.status());
    return 0;
  }
  for (const model::ListedTensor& tensor : model::all_tensors(*config)) load(**tensors, tensor);
  return 0;
}
