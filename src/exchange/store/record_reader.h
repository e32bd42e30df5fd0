// SPDX-License-Identifier: Apache-2.0
//
// Reads records of a directory's segments, and checks them: the block in front of the payload, the
// tokens, and the payload's hash. Records that lie one behind the other in a file are read at once,
// and straight to where they are wanted, if that memory is aligned as the file system wants it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
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
  enum class Check : uint8_t { kWhole, kGone, kOther, kDamaged, kFailed };

  std::vector<Record> run_from(std::span<const FetchOrder> orders) const;
  std::vector<Check> read_run(std::span<const FetchOrder> orders, std::span<const Record> run);
  bool read_straight(Segment& segment, std::span<const FetchOrder> orders,
                     std::span<const Record> run, std::vector<Check>& checks);
  Check read_error(int error);
  Check check_block(const Head& wanted, const Record& record, ConstBlockBytes block,
                    uint64_t& payload_hash);
  Check without_hash(Segment& segment, const Head& wanted, const Record& record);
  Check read_parts(const FetchOrder& order, std::span<const Record> records);
  Check read_part(const FetchOrder& order, const Record& record);
  void settle(const FetchOrder& order, const Record& record, Check check);
  Result<FetchResult> try_again(const FetchOrder& order, Check check);

  SegmentSet& segments_;
  Name record_class_;
  BlockMemory memory_;
  int error_ = 0;  // of the last kFailed
  std::string why_;
};

}  // namespace wideep::store
