// SPDX-License-Identifier: Apache-2.0
//
// Who appends, completes, takes out or removes has the file's lock, and looks again at what it has
// seen without it.
#include "store/segment.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace wideep::store {
namespace {

constexpr std::string_view kPrefix = "segment-";
constexpr std::string_view kSuffix = ".wideep";
constexpr size_t kDigits = 16;

bool is_same(const RecordHead& a, const RecordHead& b) {
  return a.head.name == b.head.name && a.head.kind == b.head.kind && a.head.part == b.head.part;
}

}  // namespace

Segment::Segment(std::string directory, uint64_t id)
    : directory_(std::move(directory)), path_(directory_ + "/" + file_name(id)), scanner_(id) {
  head_.id = id;
}

std::string Segment::file_name(uint64_t id) {
  return fmt::format("{}{:016x}{}", kPrefix, id, kSuffix);
}

std::optional<uint64_t> Segment::id_of(std::string_view name) {
  if (name.size() != kPrefix.size() + kDigits + kSuffix.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(kSuffix)) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kPrefix.size(), kDigits);
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), id, 16);
  if (error != std::errc() || end != digits.end() || file_name(id) != name) return std::nullopt;
  return id;
}

int Segment::open() { return file_.is_open() ? 0 : file_.open(path_, /*is_new=*/false); }

int Segment::update_state() {
  DirectFile::State state;
  if (const int error = file_.state(state); error != 0) return error;
  if (!state.is_linked) return ENOENT;
  size_ = state.size;
  allocated_ = state.allocated;
  if (!is_appending_ && (is_headless_ || size_ < head_.capacity)) is_complete_ = true;
  return 0;
}

// Somebody else may have removed it since it was opened.
int Segment::lock() {
  if (const int error = open(); error != 0) return error;
  if (!file_.is_writable()) return EROFS;
  if (const int error = file_.lock(); error != 0) return error;
  const int error = update_state();
  if (error != 0) file_.unlock();
  return error;
}

// Before it has its lock another process may take it for what a dead one has left, and remove it.
int Segment::create(uint64_t capacity, uint64_t sequence) {
  head_.capacity = capacity;
  head_.sequence = sequence;
  if (const int error = file_.open(path_, /*is_new=*/true); error != 0) return error;
  int error = lock();
  if (error == 0) error = file_.reserve(capacity);
  if (error == 0) {
    const std::span block(block_.at_least(kBlockBytes), kBlockBytes);
    write_block(head_, BlockBytes(block.data(), kBlockBytes));
    error = file_.write(0, block);
  }
  if (error == 0) error = update_state();
  if (error != 0) {
    ::unlink(path_.c_str());
    file_.close();
    return error;
  }
  is_appending_ = true;
  is_complete_ = false;
  return 0;
}

int Segment::look(Look& look) {
  if (const int error = open(); error != 0) return error;
  if (const int error = update_state(); error != 0) return error;
  look = Look::kNotYet;
  if (size_ < kBlockBytes) return 0;
  const std::span block(block_.at_least(kBlockBytes), kBlockBytes);
  if (const int error = file_.read(0, block); error != 0) return error;
  SegmentHead head;
  switch (read_block(ConstBlockBytes(block.data(), kBlockBytes), head)) {
    case BlockKind::kWhole:
      look = head.id == head_.id ? Look::kOurs : Look::kForeign;
      if (look == Look::kOurs) head_ = head;
      break;
    case BlockKind::kEmpty:
      break;
    case BlockKind::kOtherVersion:
      look = Look::kOtherVersion;
      break;
    case BlockKind::kUnreadable:
      look = Look::kOurs;
      is_headless_ = true;
      break;
  }
  return 0;
}

int Segment::refresh(const std::function<void(const RecordHead&)>& found) {
  if (is_appending_) return update_state();  // its records are known
  if (is_scanned_) {
    struct stat state = {};
    if (::stat(path_.c_str(), &state) != 0) return errno;
    allocated_ = static_cast<uint64_t>(state.st_blocks) * 512;
    return 0;
  }
  if (const int error = open(); error != 0) return error;
  if (const int error = update_state(); error != 0) return error;
  const int error = scanner_.scan(file_, size_, is_complete_, found);
  is_scanned_ = is_complete_ && error == 0;
  return error;
}

int Segment::take_over(const std::function<void(const RecordHead&)>& found) {
  if (const int error = lock(); error != 0) return error;
  int error = is_complete_ ? EEXIST : scanner_.scan(file_, size_, /*is_complete=*/true, found);
  if (error == 0) error = file_.punch(scanner_.end(), head_.capacity - scanner_.end());
  if (error == 0) error = file_.reserve(head_.capacity);
  is_appending_ = error == 0 || error == EOPNOTSUPP;
  if (error == EOPNOTSUPP) {
    complete();  // what was half written cannot become zeros but with the end of the file
  } else if (error != 0) {
    file_.unlock();
  }
  return error;
}

// One block less than there is: a segment that is complete is always shorter than its capacity.
bool Segment::has_room(uint64_t record_bytes) const {
  return is_appending_ && scanner_.end() + record_bytes + kBlockBytes <= head_.capacity;
}

int Segment::append(RecordHead& record, std::span<std::byte> block_and_payload) {
  record.segment = head_.id;
  record.offset = scanner_.end();
  write_block(record, BlockBytes(block_and_payload.data(), kBlockBytes));
  int error = file_.write(record.payload_offset(), block_and_payload.subspan(kBlockBytes));
  if (error == 0) error = file_.write(record.offset, block_and_payload.first(kBlockBytes));
  if (error == 0) {
    scanner_.pass(record.end());
    return 0;
  }
  complete();
  return error;
}

int Segment::complete() {
  if (!is_appending_) return 0;
  const int error = file_.truncate(scanner_.end());
  is_appending_ = false;
  is_complete_ = is_scanned_ = error == 0;
  update_state();
  file_.unlock();
  return error;
}

bool Segment::has(const RecordHead& record) {
  RecordHead found;
  const std::span block(block_.at_least(kBlockBytes), kBlockBytes);
  return open() == 0 && file_.read(record.offset, block) == 0 &&
         read_block(ConstBlockBytes(block.data(), kBlockBytes), head_.id, record.offset, found) ==
             BlockKind::kWhole &&
         is_same(found, record);
}

// Records are taken out of complete segments only, with the lock: who has it meanwhile may be doing
// just that.
bool Segment::has_for_sure(const RecordHead& record) {
  if (open() != 0 || update_state() != 0) return false;
  if (!is_complete_ || !file_.is_writable()) return has(record);
  if (lock() != 0) return false;
  const bool has_it = has(record);
  file_.unlock();
  return has_it;
}

int Segment::take_out(const RecordHead& record) {
  if (!is_complete_) return EAGAIN;
  if (const int error = lock(); error != 0) return error;
  int error = ENOENT;
  if (has(record)) {
    error = file_.punch(record.offset, record.bytes());
    if (error == EOPNOTSUPP) {
      const std::span block(block_.at_least(kBlockBytes), kBlockBytes);
      std::fill(block.begin(), block.end(), std::byte{0});
      if (const int failed = file_.write(record.offset, block); failed != 0) error = failed;
    }
  }
  update_state();
  file_.unlock();
  return error;
}

int Segment::remove_unbegun() {
  if (const int error = lock(); error != 0) return error;
  Look now = Look::kOurs;
  int error = look(now);
  if (error == 0) error = now != Look::kNotYet ? EEXIST : ::unlink(path_.c_str()) == 0 ? 0 : errno;
  file_.close();
  return error;
}

int Segment::remove() {
  if (!is_appending_) {
    if (const int error = lock(); error != 0) return error;
  }
  const int error = ::unlink(path_.c_str()) == 0 ? 0 : errno;
  is_appending_ = false;
  file_.close();  // with the lock
  return error;
}

}  // namespace wideep::store
