// SPDX-License-Identifier: Apache-2.0
//
// A segment as this process knows it: a file of records in a directory (segment_format.h).
//
// One process at a time appends to it and has its lock meanwhile. The file is made in its full
// length, its capacity; who will append no more cuts it behind the last record, by which others see
// that it is complete. A file of full length without a lock is of a process that has ended, and
// another may go on with it. Records are taken out of complete segments only, with the lock.
//
// A record's payload is written before its block: a process that dies while it writes leaves none.
//
// Functions return 0 or what errno says. Thread safety: one thread; other processes as above.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "store/direct_file.h"
#include "store/segment_format.h"
#include "store/segment_scanner.h"

namespace wideep::store {

class Segment {
 public:
  enum class Look : uint8_t {
    kOurs,
    kOtherVersion,
    kNotYet,   // its first block is not written; without a lock it never will be
    kForeign,  // no segment, in spite of its name
  };

  Segment(std::string directory, uint64_t id);
  // "segment-00c0ffee00c0ffee.wideep"
  static std::string file_name(uint64_t id);
  static std::optional<uint64_t> id_of(std::string_view file_name);

  uint64_t id() const { return head_.id; }
  uint64_t capacity() const { return head_.capacity; }
  uint64_t sequence() const { return head_.sequence; }
  const std::string& path() const { return path_; }

  // Makes the file, with its lock, to append to. A file that stays without records is removed by
  // remove(). Errors leave none.
  int create(uint64_t capacity, uint64_t sequence);
  // Reads the first block. Without one that can be read, but with our name, records are found all
  // the same: they have the segment's id, as the name.
  int look(Look& look);

  int open();
  void close() { file_.close(); }
  bool is_open() const { return file_.is_open(); }
  bool is_appending() const { return is_appending_; }
  // Nothing is appended to it any more, as far as the last refresh() has seen.
  bool is_complete() const { return is_complete_; }
  // What it takes of the disk, or will take.
  uint64_t allocated() const { return is_complete_ ? allocated_ : head_.capacity; }
  uint64_t unreadable() const { return scanner_.unreadable(); }
  uint64_t of_other_versions() const { return scanner_.of_other_versions(); }

  // Records that were appended since the last call, by anyone. ENOENT: the file is gone.
  int refresh(const std::function<void(const RecordHead&)>& found);

  // Takes it over if nobody appends to it: the records that it has are found, and what was half
  // written is zeros again. EAGAIN: somebody does. EOPNOTSUPP: it is complete now instead.
  int take_over(const std::function<void(const RecordHead&)>& found);
  bool has_room(uint64_t record_bytes) const;
  // block_and_payload: memory aligned to a block, with a block in front that is written here, and
  // the payload behind, filled up with zeros. record: gets the place. Errors end the appending.
  int append(RecordHead& record, std::span<std::byte> block_and_payload);
  // No more is appended; the rest of the file is given back.
  int complete();

  // Takes the record out, if it is there. EAGAIN: somebody else appends to the segment, or takes
  // records out. ENOENT: it was not there. EOPNOTSUPP: its bytes are not free before the segment is
  // removed.
  int take_out(const RecordHead& record);
  // Removes the file. EAGAIN: as above.
  int remove();
  // Removes it if it is what a process has left that died before it wrote the first block (kNotYet).
  int remove_unbegun();

  DirectFile& file() { return file_; }
  // Whether the block of this record is at its place; false also where it cannot be read.
  bool has(const RecordHead& record);
  // The same, and false while somebody else takes out records: what was read of this one before is
  // damaged if this is true, and else perhaps gone.
  bool has_for_sure(const RecordHead& record);

 private:
  int lock();
  int update_state();

  std::string directory_;
  std::string path_;
  SegmentHead head_;
  DirectFile file_;
  SegmentScanner scanner_;
  BlockMemory block_;
  uint64_t size_ = 0;
  uint64_t allocated_ = 0;
  bool is_headless_ = false;  // its first block cannot be read
  bool is_complete_ = false;
  bool is_scanned_ = false;  // complete, and its records are known
  bool is_appending_ = false;
};

}  // namespace wideep::store
