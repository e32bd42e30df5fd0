// SPDX-License-Identifier: Apache-2.0
#include "doctor_packed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/machine.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "base/work_progress.h"
#include "packed/packed_file.h"
#include "packed/packed_writer.h"

namespace wideep::tools {
namespace {

namespace fs = std::filesystem;
using State = PackedEntry::State;

// Whether a process holds the lock of a PackedWriter.
bool is_being_written(const fs::path& directory) {
  const int fd = ::open((directory / packed::kProgressFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0;
  ::close(fd);
  return is_locked;
}

PackedEntry unfinished(const fs::path& directory) {
  std::error_code absent;
  const auto bytes = fs::file_size(directory / packed::kRecordsFile, absent);
  return {.name = directory.filename().string(),
          .state = is_being_written(directory) ? State::kBeingWritten : State::kUnfinished,
          .bytes = absent ? 0 : bytes};
}

class Verification {
 public:
  explicit Verification(uint64_t all)
      : all_(all),
        // Most of them wait for the disk.
        threads_(std::max(8, base::read_machine().usable_cores())),
        progress_("verifying", "") {}

  Status run(const packed::PackedFile& file) {
    return file.verify(threads_, [this](uint64_t bytes) {
      done_ += bytes;
      progress_.show(done_, all_);
    });
  }

 private:
  uint64_t all_, done_ = 0;
  base::ThreadPool threads_;
  base::WorkProgress progress_;
};

}  // namespace

Result<PackedCache> look_at_packed(const std::string& directory, bool verify) {
  PackedCache cache{.directory = directory};
  std::error_code error;
  if (!verify && !fs::exists(directory, error)) return cache;  // the first start makes it
  std::vector<fs::path> found;
  for (fs::directory_iterator each(directory, error), end; !error && each != end;
       each.increment(error)) {
    std::error_code absent;
    const bool is_packed = fs::exists(each->path() / packed::kRecordsFile, absent) ||
                           fs::exists(each->path() / packed::kIndexFile, absent);
    if (is_packed) found.push_back(each->path());
  }
  if (error) {
    return invalid_input(fmt::format("--packed-cache {}: {}", directory, error.message()));
  }
  std::ranges::sort(found);
  std::vector<packed::PackedFile> files;
  uint64_t bytes = 0;
  for (const fs::path& path : found) {
    if (path.extension() == packed::kUnfinished) {
      cache.entries.push_back(unfinished(path));
      continue;
    }
    PackedEntry& entry = cache.entries.emplace_back(PackedEntry{.name = path.filename().string()});
    auto file = packed::PackedFile::open(path.string(), "");
    if (!file.ok()) {
      entry.state = State::kUnusable;
      entry.trouble = file.status().message();
      continue;
    }
    entry.bytes = file->total_bytes();
    entry.num_parts = file->parts().size();
    entry.record_class = file->record_class();
    bytes += entry.bytes;
    files.push_back(std::move(*file));
  }
  const auto space = fs::space(directory, error);
  if (!error) cache.free_bytes = space.available;
  if (!verify) return cache;
  Verification verification(bytes);
  auto file = files.begin();
  for (PackedEntry& entry : cache.entries) {
    if (entry.state != State::kFinished) continue;
    entry.trouble = verification.run(*file++).message();
    if (!entry.trouble.empty()) entry.state = State::kUnusable;
  }
  cache.is_verified = true;
  return cache;
}

Status outcome_of(const PackedCache& cache) {
  const auto is_bad = [](const PackedEntry& entry) { return entry.state == State::kUnusable; };
  const auto first = std::ranges::find_if(cache.entries, is_bad);
  if (first == cache.entries.end()) return {};
  return failed(fmt::format("{} of {} packed files cannot be used; the first: {}",
                            std::ranges::count_if(cache.entries, is_bad), cache.entries.size(),
                            first->trouble));
}

}  // namespace wideep::tools
