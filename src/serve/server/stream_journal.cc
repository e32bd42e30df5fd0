// SPDX-License-Identifier: Apache-2.0
//
// Comments can only be where an event begins: everywhere else bytes are passed on as they come.
// Asides are passed on whole, since a client that has half of one could not be given the other
// half. While the new stream repeats what the client has, its asides are dropped: the client may
// be in the middle of an event.
#include "server/stream_journal.h"

#include <algorithm>
#include <charconv>

#include "server/stream_records.h"

namespace wideep::server {
namespace {

constexpr std::string_view kEventEnd = "\n\n";
// Longer ones are no server's.
constexpr size_t kMaxAsideBytes = size_t{1} << 20;

}  // namespace

void StreamJournal::Prefix::add(std::string_view bytes) {
  count += bytes.size();
  for (const char each : bytes) {
    hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  }
}

std::string StreamJournal::take(std::string_view bytes) {
  std::string out;
  while (!bytes.empty() && !differs_) {
    if (aside_left_ > 0) {
      const size_t count = std::min(aside_left_, bytes.size());
      aside_ += bytes.substr(0, count);
      aside_left_ -= count;
      bytes.remove_prefix(count);
      if (aside_left_ == 0) end_aside(&out);
    } else if (newlines_ == 2) {
      bytes.remove_prefix(take_marked(bytes, &out));
    } else {
      // To the end of the event.
      size_t count = 0;
      while (count < bytes.size() && newlines_ < 2) {
        newlines_ = bytes[count++] == '\n' ? newlines_ + 1 : 0;
      }
      pass(bytes.substr(0, count), &out);
      bytes.remove_prefix(count);
    }
  }
  return out;
}

// Where an event begins, or in a comment. Returns how many bytes were taken.
size_t StreamJournal::take_marked(std::string_view bytes, std::string* out) {
  if (mark_.size() < kStreamMark.size()) {
    const std::string_view rest = kStreamMark.substr(mark_.size());
    const auto same = std::ranges::mismatch(bytes, rest);
    const auto count = static_cast<size_t>(same.in1 - bytes.begin());
    mark_ += bytes.substr(0, count);
    if (same.in1 == bytes.end() || same.in2 == rest.end()) return count;
    newlines_ = 0;  // it is none
    pass(mark_, out);
    mark_.clear();
    return count;
  }
  // The end may have begun before.
  const size_t searched = mark_.size() - 1;
  const size_t before = mark_.size();
  mark_ += bytes;
  const size_t end = mark_.find(kEventEnd, searched);
  if (end == mark_.npos) {
    if (mark_.size() > kMaxBytes) {
      give_up();
      mark_.resize(kStreamMark.size());  // the rest of it is read all the same
      mark_.back() = bytes.back();
    }
    return bytes.size();
  }
  mark_.resize(end);
  const size_t taken = end + kEventEnd.size() - before;
  read_comment(out);
  mark_.clear();
  return taken;
}

void StreamJournal::read_comment(std::string* out) {
  const std::string_view comment = mark_;
  if (comment.starts_with(kRecordMark)) return add_record(comment.substr(kRecordMark.size()));
  if (!comment.starts_with(kAsideMark)) return;
  const std::string_view digits = comment.substr(kAsideMark.size());
  size_t count = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (read.ec != std::errc() || count > kMaxAsideBytes) return give_up();
  aside_left_ = count;
  aside_.clear();
  if (count == 0) end_aside(out);
}

void StreamJournal::end_aside(std::string* out) {
  if (!is_behind()) *out += aside_;
  aside_.clear();
}

// Bytes that the client has are compared instead.
void StreamJournal::pass(std::string_view bytes, std::string* out) {
  const size_t repeated = std::min(bytes.size(), known_.count - std::min(known_.count, passed_));
  passed_ += bytes.size();
  if (repeated > 0) {
    repeated_.add(bytes.substr(0, repeated));
    differs_ = repeated_.count == known_.count && repeated_.hash != known_.hash;
    if (differs_) return;
  }
  known_.add(bytes.substr(repeated));
  *out += bytes.substr(repeated);
}

void StreamJournal::add_record(std::string_view text) {
  ++num_records_;
  if (gave_up_) return;
  const size_t bytes = text.size() + 1;
  if (records_.size() + bytes > kMaxBytes ||
      memory_.bytes + bytes > StreamJournalMemory::kMaxBytes) {
    return give_up();
  }
  memory_.bytes += bytes;
  records_ += text;
  records_ += '\n';
}

void StreamJournal::give_up() {
  gave_up_ = true;
  memory_.bytes -= records_.size();
  records_ = {};
}

bool StreamJournal::can_resume(size_t request_bytes) const {
  if (gave_up_ || differs_ || request_bytes + records_.size() > kMaxBytes) return false;
  return has_records() || known_.count == 0;
}

std::string StreamJournal::resumed(std::string_view request) const {
  std::string body(request);
  body += records_;
  return body;
}

void StreamJournal::begin_again() {
  repeated_ = {};
  passed_ = 0;
  newlines_ = 2;
  mark_.clear();
  aside_left_ = 0;
  aside_.clear();
}

}  // namespace wideep::server
