// SPDX-License-Identifier: Apache-2.0
//
// Reads records of a directory's segments, and checks them: the block in front of the payload, the
// tokens, and the payload's hash. Records that lie one behind the other in a file are read at once.
// While some are copied to where they are wanted, and checked, a thread reads the next. A disk that
// wrote straight there would be slower by half: the memory of a cache has pages of 4 KiB, most of
// which are not there before their first use (docs/decisions/0049).
//
// Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "store/place.h"
#include "store/segment_set.h"

namespace wideep::store {

class RecordReader {
 public:
  static constexpr uint64_t kMaxReadBytes = uint64_t{4} << 20;  // of several records at once

  RecordReader(SegmentSet& segments, const Name& record_class)
      : segments_(segments), record_class_(record_class) {}

  // Records that have all of the part between them; none: they are not there.
  std::vector<DirectoryIndex::Record> records_for(const Head& head) const;

  // As Place::fetch. Records that are gone or damaged leave the index; those of other tokens stay.
  Status fetch(std::span<const FetchOrder> orders,
               const std::function<bool(size_t index, FetchResult result)>& done);

 private:
  using Record = DirectoryIndex::Record;
  enum class Check : uint8_t { kWhole, kGone, kOther, kDamaged, kOtherHash, kFailed };

  // The next orders that are read at once: records that have just the parts that are wanted, and
  // lie one behind the other. No record: the one order has to be put together, or is not there.
  struct Batch {
    size_t first = 0;
    std::span<const FetchOrder> orders;
    std::vector<Record> records;
    std::vector<Check> checks;
    BlockMemory memory;          // blocks and payloads, as they lie in the file
    DirectFile* file = nullptr;  // until it is read
    int error = 0;
  };

  Status fetch_in_batches(std::span<const FetchOrder> orders,
                          const std::function<bool(size_t index, FetchResult result)>& done);
  void begin(std::span<const FetchOrder> orders, size_t first, Batch& batch);
  static void read(Batch& batch);
  static void check(Batch& batch);
  Result<bool> settle(Batch& batch,
                      const std::function<bool(size_t index, FetchResult result)>& done);

  static Check check_block(const Head& wanted, const Record& record, ConstBlockBytes block,
                           uint64_t& payload_hash);
  Check read_error(int error);
  Check read_part(const FetchOrder& order, const Record& record);
  Check read_parts(const FetchOrder& order, std::span<const Record> records);
  Check settled(const FetchOrder& order, const Record& record, Check check);
  Result<FetchResult> try_again(const FetchOrder& order, Check check);

  SegmentSet& segments_;
  Name record_class_;
  std::array<Batch, 2> batches_;
  BlockMemory memory_;  // of one record
  int error_ = 0;       // of the last kFailed
};

}  // namespace wideep::store
