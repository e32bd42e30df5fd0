// SPDX-License-Identifier: Apache-2.0
//
// All experts of a model, once per node and in the form that slots hold, so that moving an expert
// is a plain copy. The ranks of the node share it: made before they are forked, filled by all of
// them, each its share, and constant from then on.
//
// It is anonymous memory: however the ranks end, nothing is left behind.
//
// Thread safety: filling writes what is one's own share; reading is free once all have filled.
//
//   WIDEEP_TRY_ASSIGN(auto pool, HostPool::create(shape, num_layers, num_experts));
//   // in each rank:
//   WIDEEP_TRY(pool->reserve_share(rank, num_ranks));
//   ... fill pool->record(layer, expert) for every i = layer · num_experts + expert of the share,
//   pool->seal(layer, expert) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/shared_bytes.h"
#include "weights/expert_record.h"
#include "wideep/status.h"

namespace wideep::weights {

class HostPool {
 public:
  // num_layers: MoE layers. Takes no memory yet. Errors (failed): the kernel refuses to map it.
  static Result<std::unique_ptr<HostPool>> create(const ExpertShape& shape, int num_layers,
                                                  int num_experts);

  const ExpertShape& shape() const { return shape_; }
  int num_layers() const { return num_layers_; }
  int num_experts() const { return num_experts_; }
  uint64_t total_bytes() const { return records_.size(); }
  bool in_huge_pages() const { return records_.huge(); }

  // Records [begin, end), by layer · num_experts + expert, that a rank fills.
  struct Share {
    int begin = 0;
    int end = 0;
  };
  Share share_of(int rank, int num_ranks) const;
  // Takes the share's memory. Errors (failed): there is not enough.
  Status reserve_share(int rank, int num_ranks) const;

  // layer: position among the MoE layers.
  std::byte* record(int layer, int expert) const {
    return records_.data() + index(layer, expert) * shape_.record_bytes();
  }
  // The record is complete: remembers its hash.
  void seal(int layer, int expert);
  uint64_t content_hash(int layer, int expert) const { return hashes()[index(layer, expert)]; }

 private:
  HostPool(const ExpertShape& shape, int num_layers, int num_experts)
      : shape_(shape), num_layers_(num_layers), num_experts_(num_experts) {}
  size_t index(int layer, int expert) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(num_experts_) +
           static_cast<size_t>(expert);
  }
  uint64_t* hashes() const { return reinterpret_cast<uint64_t*>(hashes_.data()); }

  ExpertShape shape_;
  int num_layers_;
  int num_experts_;
  base::SharedBytes records_;  // [num_layers, num_experts] of record_bytes
  base::SharedBytes hashes_;   // [num_layers, num_experts] uint64
};

}  // namespace wideep::weights
