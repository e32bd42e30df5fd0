// SPDX-License-Identifier: Apache-2.0
//
// Host memory with the experts of all layers, once per node and in the form of slots, so that
// moving an expert to a slot is a plain copy. All ranks of the node share it and fill it together,
// in parts that each of them takes until none is left; then the pool does not change any more.
//
// An expert with several slices (ExpertShape::num_slices) has a record and a hash for each.
//
// The memory is anonymous: the kernel frees it when the last rank ends, even by a crash.
//
// Thread safety: a rank fills only the parts that it has taken; any thread may read once
// is_filled().
//
//   WIDEEP_TRY_ASSIGN(auto pool, HostPool::create(shape, num_layers, num_experts));
//   // in each rank:
//   while (const auto part = pool->take(rank)) {
//     WIDEEP_TRY(pool->reserve(*part));
//     ... fill pool->record(at) and pool->seal(at), at = pool->address(i), for every i of the part
//     pool->finish(*part);
//   }
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/shared_bytes.h"
#include "weights/expert_record.h"
#include "wideep/status.h"

namespace wideep::weights {

class HostPool {
 public:
  // num_layers: the number of MoE layers. Only maps the memory. Errors (failed): the kernel
  // refuses.
  static Result<std::unique_ptr<HostPool>> create(
      const ExpertShape& shape, int num_layers, int num_experts,
      const base::MakeSharedBytes& make = base::SharedBytes::create);

  const ExpertShape& shape() const { return shape_; }
  int num_layers() const { return num_layers_; }
  int num_experts() const { return num_experts_; }
  uint64_t total_bytes() const { return records_.size(); }
  bool in_huge_pages() const { return records_.huge(); }

  // layer: position among the MoE layers.
  struct Address {
    int layer = 0;
    int expert = 0;
    int slice = 0;
  };
  // Records are counted layer by layer, expert by expert, slice by slice.
  Address address(int index) const {
    const int whole = index / shape_.num_slices;
    return {whole / num_experts_, whole % num_experts_, index % shape_.num_slices};
  }
  // The records [begin, end).
  struct Part {
    int index = 0;
    int begin = 0;
    int end = 0;
  };
  // A part that nobody has taken; nullopt: there is none.
  std::optional<Part> take(int rank);
  void finish(const Part& part);
  // The rank has died: what it has taken and not finished may be taken again.
  void release(int rank);
  bool is_filled() const;
  // Allocates the memory of the part. Errors (failed): there is not enough.
  Status reserve(const Part& part) const;

  std::byte* record(const Address& at) const {
    return records_.data() + index(at) * shape_.record_bytes();
  }
  // Stores the hash of a complete record; copies of the record are checked against it.
  void seal(const Address& at);
  uint64_t content_hash(const Address& at) const { return hashes()[index(at)]; }

 private:
  HostPool(const ExpertShape& shape, int num_layers, int num_experts)
      : shape_(shape), num_layers_(num_layers), num_experts_(num_experts) {}
  int num_records() const { return num_layers_ * num_experts_ * shape_.num_slices; }
  int num_parts() const;
  Part part(int index) const;
  // Of a part: free, done, or 1 + the rank that fills it.
  using Owner = std::atomic<uint32_t>;
  static constexpr uint32_t kFree = 0, kDone = ~uint32_t{0};
  Owner& owner(int part) const { return reinterpret_cast<Owner*>(owners_.data())[part]; }
  size_t index(const Address& at) const {
    const size_t whole = static_cast<size_t>(at.layer) * static_cast<size_t>(num_experts_) +
                         static_cast<size_t>(at.expert);
    return whole * static_cast<size_t>(shape_.num_slices) + static_cast<size_t>(at.slice);
  }
  uint64_t* hashes() const { return reinterpret_cast<uint64_t*>(hashes_.data()); }

  ExpertShape shape_;
  int num_layers_;
  int num_experts_;
  base::SharedBytes records_;  // [num_layers, num_experts, num_slices] of record_bytes
  base::SharedBytes hashes_;   // uint64 [num_layers, num_experts, num_slices]
  base::SharedBytes owners_;   // Owner [num_parts]
};

}  // namespace wideep::weights
