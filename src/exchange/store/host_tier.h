// SPDX-License-Identifier: Apache-2.0
//
// Pages in a node's memory, shared by its ranks. They outlive the sequence and the rank that wrote
// them, not the service.
//
//   the process that forks:  HostTier::create_memory(bytes, make)
//   each rank:               HostTier::open(memory)
//
// Bytes are copied without a lock. A reader does not keep anybody from taking the blocks it reads:
// it sees by the slot's generation and by the hash that it came too late, and has nothing then. So
// a reader that dies holds nothing, and blocks of a writer that dies are free again (host_index.h).
#pragma once

#include <memory>
#include <vector>

#include "base/shared_bytes.h"
#include "store/host_index.h"
#include "store/place.h"

namespace wideep::store {

class HostTier : public Place {
 public:
  // max_bytes: for payloads, in blocks of 64 KiB; the memory is taken as it is used, with one
  // hundredth more for the index. Errors: invalid_input: less than a block; failed: the kernel.
  static Result<base::SharedBytes> create_memory(
      uint64_t max_bytes, const base::MakeSharedBytes& make = base::SharedBytes::create) {
    return HostIndex::create_memory(max_bytes, make);
  }
  // memory: must outlive the tier. Errors (failed): it is not of create_memory().
  static Result<std::unique_ptr<HostTier>> open(const base::SharedBytes& memory);

  std::string_view label() const override { return "host"; }
  std::vector<bool> find(std::span<const Head> heads) override { return find(heads, 0.0); }
  Status fetch(std::span<const FetchOrder> orders,
               const std::function<bool(size_t index, FetchResult result)>& done) override;
  OfferResult offer(const Head& head, std::span<const std::byte> payload, double seconds,
                    const std::function<bool()>& is_intact) override;
  void forget(const Name& name, Kind kind) override;
  // As find(). What is there is not evicted for so long: somebody will fetch it.
  std::vector<bool> lease(std::span<const Head> heads, double seconds) {
    return find(heads, seconds);
  }
  PlaceCounts counts() const override { return counts_; }
  PlaceSize size() override;

  // What is fetched is not worth more for it: who takes it keeps it.
  void counts_no_hits() { counts_hits_ = false; }

  HostIndex& index() { return index_; }

 private:
  // A slot as it was when it was found.
  struct Source {
    uint32_t slot = 0;
    uint64_t generation = 0, hash = 0;
    Part part;
    std::vector<uint32_t> blocks;
  };

  explicit HostTier(const HostIndex& index) : index_(index) {}
  std::vector<bool> find(std::span<const Head> heads, double lease_seconds);
  Status look_up(const Head& head, std::vector<Source>& sources);
  FetchResult copy_out(const Source& source, std::span<std::byte> into);
  FetchResult fetch_one(const FetchOrder& order, const std::vector<Source>& sources);
  void free_unfinished();
  uint64_t copy_in(uint32_t slot, std::span<const std::byte> payload);

  HostIndex index_;
  PlaceCounts counts_;
  bool counts_hits_ = true;
  ProcessMark me_;
  uint32_t unfinished_ = HostIndex::kNone;  // slot that could not be freed yet
  uint64_t unfinished_generation_ = 0;
  std::vector<std::byte> other_part_;  // that a part is cut from
};

}  // namespace wideep::store
