// SPDX-License-Identifier: Apache-2.0
//
// Makes an entry of each complete group of positions (DeepSeek-V4): for every element a softmax of
// gates decides how much each position gives.
//
//   kv, z   = kv_proj(h), gate_proj(h)                          of each position
//   entry_i = rotate(rms_norm(Σ_j softmax_j(z_j + bias_j) · kv_j))   at the group's first position
//
// over the positions of group i; or, with two series, over the first half of kv and z of group
// i − 1 and the second half of those of group i.
//
// What positions give is kept in the cache (compressed_page.h), rounded to its dtype, and read from
// there even in the same step: so entries do not depend on how a text is cut.
//
// Thread safety: constant after loading; the scratch belongs to the calling rank.
#pragma once

#include <string>
#include <vector>

#include "model/model_forms.h"
#include "model/parts/compressed_page.h"
#include "model/parts/mixer.h"
#include "model/parts/rope.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class Compressor {
 public:
  struct Options {
    PooledWidths widths;
    int first_input = 0;    // element of an input row
    int group = 0;          // positions
    bool of_index = false;  // makes the indexer's keys
  };
  // prefix: ends with a dot. Errors: as WeightLoader.
  static Result<Compressor> load(const ModelConfig& config, const weights::WeightLoader& loader,
                                 const weights::MatrixForm& form, const std::string& prefix,
                                 const Options& options);

  // Adds the two products whose results are columns of `inputs`, [num_tokens, stride].
  void add_products(float* inputs, size_t stride, std::vector<Product>* products) const;
  const kernels::PackedShape& shape() const { return kv_.packed.shape; }

  struct Layer {
    const CompressedPage& page;
    int layer = 0;
    const Rope& rope;
  };
  // Writes entry `index` of the sequence that has these pages.
  void make_entry(const MixerCall& call, const Layer& layer, const PageList& pages,
                  int index) const;

 private:
  Compressor(const ModelConfig& config, const Options& options)
      : epsilon_(config.rms_norm_eps), options_(options) {}

  float epsilon_;
  Options options_;
  weights::Matrix kv_, gate_;  // [width, hidden]
  std::vector<float> bias_;    // [group, width]
  std::vector<float> norm_;    // [dim]
};

}  // namespace wideep::model
