// SPDX-License-Identifier: Apache-2.0
//
// The segments of a directory, with the index of their records. Other processes make, lengthen and
// remove segments at any time: poll() looks what has changed.
//
// Functions return 0 or what errno says. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "store/directory_index.h"
#include "store/segment.h"
#include "store/use_counts.h"

namespace wideep::store {

class SegmentSet {
 public:
  // Descriptors are few: so many segments are open at once.
  static constexpr size_t kMaxOpen = 64;

  struct Counts {
    uint64_t damaged = 0;  // records that could not be read, or runs of blocks that are none
    uint64_t foreign = 0;  // records of other classes; segments of other versions; other files
  };

  SegmentSet(std::string path, const Name& record_class)
      : path_(std::move(path)), record_class_(record_class), uses_(path_) {}

  const std::string& path() const { return path_; }
  DirectoryIndex& index() { return index_; }
  const DirectoryIndex& index() const { return index_; }
  const Counts& counts() const { return counts_; }
  // On the disk, with what segments in use will take.
  uint64_t allocated() const;

  int poll();

  // nullptr: it is gone, or cannot be opened now, as `error` says; if it is gone, so are its
  // records from the index.
  Segment* opened(uint64_t id, int& error);
  // Whether records can be taken out of it.
  bool is_complete(uint64_t id) const;

  // A segment to append to, nobody else's: one that a process has left that has ended, if it has
  // room for a record of so many bytes. Those without room are completed. nullptr: there is none.
  Segment* take_over(uint64_t record_bytes);
  // A new one.
  int create(uint64_t capacity, Segment*& made);
  // The index gets a record that the caller has appended.
  void add(const RecordHead& record);

  void use(const DirectoryIndex::Key& key);
  // Whether another process has used the entry since this one last looked; then it counts as used.
  bool others_have_used(const DirectoryIndex::Key& key);

  // The record leaves the index, and the disk if that is possible: EAGAIN, EROFS and the like say
  // that it is still there. A segment without records is removed.
  int take_out(const DirectoryIndex::Key& key, const DirectoryIndex::Record& record);
  // Removes the oldest segment that is complete; with what it had. ENOENT: there is none.
  int remove_oldest(uint64_t& num_records);
  // Removes a segment of another version that nobody appends to. ENOENT: there is none.
  int remove_one_of_another_version();
  // A record could not be read; it leaves the index.
  void lose(const DirectoryIndex::Key& key, const DirectoryIndex::Record& record,
            const std::string& why);

 private:
  using Segments = std::map<uint64_t, std::unique_ptr<Segment>>;

  int list(std::unordered_set<uint64_t>& ids);
  std::unique_ptr<Segment> look_at(uint64_t id);
  int refresh(Segment& segment);
  void drop(uint64_t id);
  void limit_open(uint64_t id);
  void complain_of_others(uint64_t num_files, const std::string& example);

  std::string path_;
  Name record_class_;
  DirectoryIndex index_;
  UseCounts uses_;
  Counts counts_;
  Segments segments_;
  std::map<uint64_t, uint64_t> other_versions_;  // with their bytes
  std::unordered_set<uint64_t> foreign_;
  std::unordered_set<uint64_t> complained_of_;  // segments with damage: one line each
  std::deque<uint64_t> lately_opened_;
  uint64_t num_other_files_ = 0;
  // One line each.
  bool has_told_of_versions_ = false, has_told_of_foreign_ = false, has_told_of_removal_ = false;
  uint64_t last_sequence_ = 0;
};

}  // namespace wideep::store
