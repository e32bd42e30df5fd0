// SPDX-License-Identifier: Apache-2.0
//
// Other processes change the directory between any two calls: what is not there any more is dropped,
// with its records, and never an error.
#include "store/segment_set.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "base/random_hex.h"

namespace wideep::store {
namespace {

uint64_t random_id() {
  const std::string digits = base::random_hex(sizeof(uint64_t));
  uint64_t id = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), id, 16);
  return id;
}

}  // namespace

uint64_t SegmentSet::allocated() const {
  uint64_t sum = uses_.is_open() ? UseCounts::kNumCounts : 0;
  for (const auto& [id, segment] : segments_) sum += segment->allocated();
  for (const auto& [id, bytes] : other_versions_) sum += bytes;
  return sum;
}

int SegmentSet::list(std::unordered_set<uint64_t>& ids) {
  DIR* directory = ::opendir(path_.c_str());
  if (directory == nullptr) return errno;
  uint64_t num_other_files = 0;
  std::string example;
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || name == UseCounts::kFileName) continue;
    if (const auto id = Segment::id_of(name)) {
      ids.insert(*id);
    } else {
      ++num_other_files;
      example = name;
    }
  }
  const int error = errno;
  ::closedir(directory);
  complain_of_others(num_other_files, example);
  return error;
}

void SegmentSet::complain_of_others(uint64_t num_files, const std::string& example) {
  if (num_files <= num_other_files_) return;
  if (num_other_files_ == 0) {
    log::warn("prompt cache {}: {} of its files are no segments and are left alone, {} for one",
              path_, num_files, base::printable(example));
  }
  counts_.foreign += num_files - num_other_files_;
  num_other_files_ = num_files;
}

int SegmentSet::poll() {
  std::unordered_set<uint64_t> ids;
  if (const int error = list(ids); error != 0) return error;
  uses_.open();
  std::vector<uint64_t> gone;
  for (const auto& [id, segment] : segments_) {
    if (!ids.contains(id)) gone.push_back(id);
  }
  for (const uint64_t id : gone) drop(id);
  std::erase_if(other_versions_, [&](const auto& other) { return !ids.contains(other.first); });

  std::vector<Segment*> known;
  for (const uint64_t id : ids) {
    if (foreign_.contains(id) || other_versions_.contains(id)) continue;
    auto& segment = segments_[id];
    if (!segment) segment = look_at(id);
    if (segment) {
      known.push_back(segment.get());
    } else {
      segments_.erase(id);
    }
  }
  // In the order in which they were made: what is older is less likely to be used again.
  std::sort(known.begin(), known.end(), [](const Segment* a, const Segment* b) {
    return std::pair(a->sequence(), a->id()) < std::pair(b->sequence(), b->id());
  });
  int first_error = 0;
  for (Segment* segment : known) {
    const int error = refresh(*segment);
    // A process has died before it could remove what it had emptied.
    const bool is_in_vain =
        error == 0 && segment->is_complete() && index_.num_records(segment->id()) == 0;
    if (error == ENOENT || (is_in_vain && segment->remove() == 0)) {
      drop(segment->id());
    } else if (error != 0 && first_error == 0) {
      first_error = error;
    }
  }
  return first_error;
}

// nullptr: it is nothing to find records in.
std::unique_ptr<Segment> SegmentSet::look_at(uint64_t id) {
  auto segment = std::make_unique<Segment>(path_, id);
  Segment::Look look = Segment::Look::kNotYet;
  const int error = segment->look(look);
  if (error == EINVAL || error == ELOOP || error == EISDIR || error == ENXIO) {
    look = Segment::Look::kForeign;  // no file at all
  } else if (error != 0) {
    return nullptr;
  }
  switch (look) {
    case Segment::Look::kOurs:
      last_sequence_ = std::max(last_sequence_, segment->sequence());
      limit_open(id);
      return segment;
    case Segment::Look::kNotYet:
      segment->remove_unbegun();
      return nullptr;
    case Segment::Look::kOtherVersion: {
      struct stat state = {};
      if (::stat(segment->path().c_str(), &state) != 0) return nullptr;
      if (!std::exchange(has_told_of_versions_, true)) {
        log::warn(
            "prompt cache {}: {} is of another version of wideep: it and others like it are not "
            "read, and go first where room is wanted",
            path_, Segment::file_name(id));
      }
      other_versions_[id] = static_cast<uint64_t>(state.st_blocks) * 512;
      break;
    }
    case Segment::Look::kForeign:
      if (!std::exchange(has_told_of_foreign_, true)) {
        log::warn(
            "prompt cache {}: {} is no segment, in spite of its name; it and others like it are "
            "left alone",
            path_, Segment::file_name(id));
      }
      foreign_.insert(id);
      break;
  }
  ++counts_.foreign;
  return nullptr;
}

int SegmentSet::refresh(Segment& segment) {
  const uint64_t unreadable = segment.unreadable(), foreign = segment.of_other_versions();
  const int error = segment.refresh([&](const RecordHead& record) { add(record); });
  if (segment.is_open()) limit_open(segment.id());
  counts_.damaged += segment.unreadable() - unreadable;
  counts_.foreign += segment.of_other_versions() - foreign;
  if (segment.unreadable() > unreadable && complained_of_.insert(segment.id()).second) {
    log::warn(
        "prompt cache {}: {} is damaged: blocks of it cannot be read, and the records that other "
        "blocks name are used",
        path_, Segment::file_name(segment.id()));
  }
  return error;
}

void SegmentSet::add(const RecordHead& record) {
  if (record.record_class != record_class_) ++counts_.foreign;
  index_.add(record, uses_.count(record.head.name));
}

void SegmentSet::use(const DirectoryIndex::Key& key) { index_.use(key, uses_.add(key.name)); }

bool SegmentSet::others_have_used(const DirectoryIndex::Key& key) {
  const DirectoryIndex::Entry* entry = index_.find(key);
  const uint8_t count = uses_.count(key.name);
  if (entry == nullptr || entry->count == count) return false;
  index_.use(key, count);
  return true;
}

void SegmentSet::drop(uint64_t id) {
  index_.remove_segment(id);
  segments_.erase(id);
  std::erase(lately_opened_, id);
}

void SegmentSet::limit_open(uint64_t id) {
  if (!lately_opened_.empty() && lately_opened_.back() == id) return;
  std::erase(lately_opened_, id);
  lately_opened_.push_back(id);
  if (lately_opened_.size() <= kMaxOpen) return;
  const auto oldest = std::find_if(lately_opened_.begin(), lately_opened_.end(), [&](uint64_t o) {
    const auto found = segments_.find(o);
    return found == segments_.end() || !found->second || !found->second->is_appending();
  });
  if (oldest == lately_opened_.end() || *oldest == id) return;
  const auto found = segments_.find(*oldest);
  if (found != segments_.end() && found->second) found->second->close();
  lately_opened_.erase(oldest);
}

Segment* SegmentSet::opened(uint64_t id, int& error) {
  error = ENOENT;
  const auto found = segments_.find(id);
  if (found == segments_.end()) return nullptr;
  error = found->second->open();
  if (error == 0) {
    limit_open(id);
    return found->second.get();
  }
  if (error == ENOENT) drop(id);
  return nullptr;
}

bool SegmentSet::is_complete(uint64_t id) const {
  const auto found = segments_.find(id);
  return found != segments_.end() && found->second->is_complete();
}

Segment* SegmentSet::take_over(uint64_t record_bytes) {
  for (const auto& [id, segment] : segments_) {
    if (segment->is_complete() || segment->is_appending()) continue;
    const int error = segment->take_over([&](const RecordHead& record) { add(record); });
    if (error != 0) continue;
    limit_open(id);
    if (segment->has_room(record_bytes)) return segment.get();
    segment->complete();
  }
  return nullptr;
}

int SegmentSet::create(uint64_t capacity, Segment*& made) {
  constexpr int kTries = 8;  // others take it, until it has its lock, for what a dead one has left
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t id = random_id();
    auto segment = std::make_unique<Segment>(path_, id);
    error = segment->create(capacity, last_sequence_ + 1);
    if (error == 0) {
      ++last_sequence_;
      made = segment.get();
      segments_[id] = std::move(segment);
      limit_open(id);
      return 0;
    }
    if (error != EEXIST && error != EAGAIN && error != ENOENT) return error;
  }
  return error;
}

int SegmentSet::take_out(const DirectoryIndex::Key& key, const DirectoryIndex::Record& record) {
  int error = 0;
  Segment* segment = opened(record.segment, error);
  if (segment != nullptr) {
    const RecordHead head = {.head = {.name = key.name, .kind = key.kind, .part = record.part},
                             .offset = record.offset,
                             .payload_bytes = record.part.bytes()};
    error = segment->take_out(head);
  }
  index_.remove(key, record.segment, record.offset);
  if (segment != nullptr && segment->is_complete() && index_.num_records(record.segment) == 0 &&
      segment->remove() == 0) {
    drop(record.segment);
  }
  return error;
}

int SegmentSet::remove_oldest(uint64_t& num_records) {
  std::vector<Segment*> complete;
  for (const auto& [id, segment] : segments_) {
    if (segment->is_complete()) complete.push_back(segment.get());
  }
  std::sort(complete.begin(), complete.end(),
            [](const Segment* a, const Segment* b) { return a->sequence() < b->sequence(); });
  for (Segment* segment : complete) {
    const int error = segment->remove();
    if (error == EAGAIN) continue;
    if (error != 0 && error != ENOENT) return error;
    num_records = index_.num_records(segment->id());
    drop(segment->id());
    return 0;
  }
  return ENOENT;
}

int SegmentSet::remove_one_of_another_version() {
  for (const auto& [id, bytes] : other_versions_) {
    const int error = Segment(path_, id).remove();
    if (error == EAGAIN) continue;
    if (error != 0 && error != ENOENT) return error;
    if (!std::exchange(has_told_of_removal_, true)) {
      log::info("prompt cache {}: {}, of another version of wideep, was removed to make room",
                path_, Segment::file_name(id));
    }
    other_versions_.erase(id);
    return 0;
  }
  return ENOENT;
}

void SegmentSet::lose(const DirectoryIndex::Key& key, const DirectoryIndex::Record& record,
                      const std::string& why) {
  ++counts_.damaged;
  if (complained_of_.insert(record.segment).second) {
    log::warn("prompt cache {}: {}: the record at byte {} is damaged: {}; it is not used", path_,
              Segment::file_name(record.segment), record.offset, why);
  }
  take_out(key, record);
}

}  // namespace wideep::store
