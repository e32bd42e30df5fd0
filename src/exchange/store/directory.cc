// SPDX-License-Identifier: Apache-2.0
//
// The parts of a directory (segments, reader, writer) say what errno says; here it becomes what a
// place answers, a count and a line.
#include "store/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/try.h"
#include "store/checked_copy.h"

namespace wideep::store {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// As the kernel reads it, "..", links and all, but without slashes that say nothing.
std::string without_idle_slashes(std::string_view path) {
  std::string result;
  for (const char c : path) {
    if (c != '/' || !result.ends_with('/')) result += c;
  }
  if (result.size() > 1 && result.ends_with('/')) result.pop_back();
  return result;
}

// With those that it is in. Prompts are private, whatever the umask of who starts the server. 0 or
// errno.
int make_directories(const std::string& path) {
  int error = 0;
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    error = ::mkdir(path.substr(0, end).c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
  }
  struct stat state = {};  // it may be there, and who asks still not be allowed to make it
  return error != 0 && ::stat(path.c_str(), &state) == 0 ? 0 : error;
}

}  // namespace

Directory::Directory(const DirectoryOptions& options)
    : options_(options),
      record_class_(root_name(options.record_class, "")),
      segments_(options.path, record_class_),
      reader_(segments_, record_class_),
      writer_(segments_, options.max_bytes, options.segment_bytes) {}

namespace {

// Makes the directory. Returns the options with its path as lines have it.
Result<DirectoryOptions> prepare(DirectoryOptions options) {
  options.path = without_idle_slashes(options.path);
  if (options.max_bytes < Directory::kMinBytes) {
    return invalid_input(fmt::format("prompt cache {}: expected at least {} for it, found {}",
                                     options.path, base::byte_size(Directory::kMinBytes),
                                     base::byte_size(options.max_bytes)));
  }
  if (const int error = make_directories(options.path); error != 0) {
    return invalid_input(fmt::format("prompt cache {}: the directory cannot be made: {}",
                                     options.path, std::strerror(error)));
  }
  return options;
}

Status unreadable(const DirectoryOptions& options, int error) {
  return invalid_input(fmt::format("prompt cache {}: the directory cannot be read: {}",
                                   options.path, std::strerror(error)));
}

}  // namespace

Status Directory::check(const DirectoryOptions& wanted) {
  WIDEEP_TRY_ASSIGN(const DirectoryOptions options, prepare(wanted));
  DIR* const listed = ::opendir(options.path.c_str());
  if (listed == nullptr) return unreadable(options, errno);
  ::closedir(listed);
  // Without the rights of others that may have made it, or on a disk that is mounted to be read.
  if (::faccessat(AT_FDCWD, options.path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    log::warn("prompt cache {}: nothing can be written there ({}): prompts are read from it only",
              options.path, std::strerror(errno));
  }
  return {};
}

Result<std::unique_ptr<Directory>> Directory::open(const DirectoryOptions& wanted) {
  WIDEEP_TRY_ASSIGN(const DirectoryOptions options, prepare(wanted));
  std::unique_ptr<Directory> directory(new Directory(options));
  if (const int error = directory->segments_.poll(); error != 0) return unreadable(options, error);
  directory->polled_ = Clock::now();
  return directory;
}

// Without the directory, say after somebody has removed it, nothing is found; with it again all is.
void Directory::poll_now_and_then() {
  const auto now = Clock::now();
  if (now - polled_ < kPollInterval) return;
  const int error = segments_.poll();
  polled_ = now;  // what is written from here on may not have been seen
  if (error != 0) {
    ++counts_.failures;
    if (!has_poll_failed_) {
      log::warn("prompt cache {}: what other servers write there is not seen at present: {}",
                options_.path, std::strerror(error));
    }
  } else if (has_poll_failed_) {
    log::info("prompt cache {}: it can be read again", options_.path);
  }
  has_poll_failed_ = error != 0;
}

std::vector<bool> Directory::find(std::span<const Head> heads) {
  poll_now_and_then();
  std::vector<bool> found;
  found.reserve(heads.size());
  for (const Head& head : heads) found.push_back(!reader_.records_for(head).empty());
  return found;
}

Status Directory::fetch(std::span<const FetchOrder> orders,
                        const std::function<bool(size_t index, FetchResult result)>& done) {
  const auto begin = Clock::now();
  const Status status = reader_.fetch(orders, [&](size_t index, FetchResult result) {
    if (result == FetchResult::kWhole) {
      ++counts_.fetched;
      counts_.fetched_bytes += orders[index].into.size();
    }
    return done(index, result);
  });
  counts_.fetch_seconds += seconds_since(begin);
  if (!status.ok()) ++counts_.failures;
  return status;
}

OfferResult Directory::offer(const Head& head, std::span<const std::byte> payload, double seconds,
                             const std::function<bool()>& is_intact) {
  if (is_writing_off_ && Clock::now() < retry_at_) return OfferResult::kRefused;
  if (payload.size() != head.part.bytes() || !is_possible(head.part, head.canonical_bytes)) {
    return OfferResult::kRefused;
  }
  poll_now_and_then();
  if (!reader_.records_for(head).empty()) return OfferResult::kKnown;

  RecordHead record = {.head = head,
                       .record_class = record_class_,
                       .seconds = seconds,
                       .payload_bytes = payload.size()};
  const std::span memory(memory_.at_least(record.bytes()), record.bytes());
  CheckedCopy copy(payload.size());
  copy.copy(payload.data(), memory.data() + kBlockBytes, payload.size());
  record.payload_hash = copy.hash();
  const auto rest = memory.subspan(kBlockBytes + payload.size());
  std::fill(rest.begin(), rest.end(), std::byte{0});
  if (is_intact && !is_intact()) return OfferResult::kRefused;

  const int error = writer_.append(record, memory);
  if (error == SegmentWriter::kNoRoom) return OfferResult::kRefused;
  if (error != 0) return writing_failed(error);
  writing_works();
  ++counts_.taken;
  counts_.taken_bytes += payload.size();
  return OfferResult::kTaken;
}

OfferResult Directory::writing_failed(int error) {
  ++counts_.failures;
  if (!is_writing_off_) {
    log::warn(
        "prompt cache {}: nothing can be written: {}; what is there is still read, and writing is "
        "tried again",
        options_.path, std::strerror(error));
  }
  retry_after_ = is_writing_off_ ? std::min<Clock::duration>(2 * retry_after_, kLastRetry)
                                 : Clock::duration(kFirstRetry);
  is_writing_off_ = true;
  retry_at_ = Clock::now() + retry_after_;
  if (error == ENOENT) make_directories(options_.path);  // somebody has removed it
  return OfferResult::kRefused;
}

void Directory::writing_works() {
  if (is_writing_off_) log::info("prompt cache {}: it is written again", options_.path);
  is_writing_off_ = false;
}

void Directory::forget(const Name& name, Kind kind) {
  const DirectoryIndex::Key key = {.name = name, .kind = kind};
  const DirectoryIndex::Entry* entry = segments_.index().find(key);
  if (entry == nullptr) return;
  const std::vector<DirectoryIndex::Record> records = entry->records;
  for (const auto& record : records) segments_.take_out(key, record);
}

Status Directory::complete() {
  const int error = writer_.complete();
  if (error == 0) return {};
  return failed(
      fmt::format("prompt cache {}: cannot be written: {}", options_.path, std::strerror(error)));
}

PlaceCounts Directory::counts() const {
  PlaceCounts counts = counts_;
  counts.evicted = writer_.evicted();
  counts.damaged = segments_.counts().damaged;
  counts.foreign = segments_.counts().foreign;
  return counts;
}

PlaceSize Directory::size() {
  return {.records = segments_.index().num_records(),
          .bytes = segments_.allocated(),
          .max_bytes = options_.max_bytes};
}

}  // namespace wideep::store
