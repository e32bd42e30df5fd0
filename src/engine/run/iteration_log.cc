// SPDX-License-Identifier: Apache-2.0
//
// Lines are written with one write(2) each and no buffer, so that the file always ends with a whole
// line and a reader can follow it. If a write fails half way, the file is cut back to the last
// whole line.
//
// Where another process goes on with the log, its descriptor may be of a file that was renamed
// meanwhile: it opens the path again.
#include "run/iteration_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "kernels/kv_page.h"

namespace wideep::run {
namespace {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(microseconds / 1'000'000),
                     microseconds % 1'000'000);
}

nlohmann::ordered_json cache_json(const engine::QueueRecord& queue) {
  return {{"maxNumBlocks", queue.max_pages},
          {"usedNumBlocks", queue.cache_pages},
          {"freeNumBlocks", queue.max_pages - queue.cache_pages},
          {"keptNumBlocks", queue.kept_pages},
          {"reusedBlocks", queue.reused_tokens / kernels::kPageTokens},
          {"evictedBlocks", queue.evicted_pages},
          {"tokensPerBlock", kernels::kPageTokens}};
}

nlohmann::ordered_json batch_json(const IterationSummary& summary) {
  const engine::QueueRecord& queue = summary.queue;
  return {{"numScheduledRequests", queue.scheduled},
          {"numContextRequests", queue.prompts},
          {"numGenRequests", queue.scheduled - queue.prompts},
          {"numPausesTotal", queue.pauses},
          {"numCtxTokens", summary.prompt_tokens},
          {"numGeneratedTokens", summary.generated_tokens}};
}

nlohmann::ordered_json drafts_json(const IterationSummary& summary) {
  const SpeculationTotals& speculation = summary.speculation;
  return {{"numDraftTokens", speculation.drafted},
          {"numAcceptedTokens", speculation.accepted},
          {"numRequestsWithDraftTokens", speculation.drafts},
          {"acceptanceLength", speculation.acceptance_length()}};
}

// The kinds of the two files. A pipe or a device has no bound, since it cannot be renamed. Removes
// the second file of an earlier run, as that run's first one has been overwritten.
Status prepare_rotation(const std::string& path, uint64_t* max_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) *max_bytes = 0;
  if (*max_bytes == 0) return {};
  WIDEEP_TRY(formats::check_writable(path + ".1").at("--iteration-log"));
  fs::remove(path + ".1", error);
  if (!error) return {};
  return invalid_input(fmt::format("--iteration-log {}.1: an earlier run's cannot be removed: {}",
                                   path, error.message()));
}

}  // namespace

Result<IterationLog> IterationLog::create(const std::string& path, uint64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    return invalid_input(
        fmt::format("--iteration-log {}: cannot be written: {}", path, std::strerror(errno)));
  }
  IterationLog log(path, fd, max_bytes);
  WIDEEP_TRY(prepare_rotation(path, &log.max_bytes_));
  return log;
}

IterationLog::IterationLog(std::string path, int fd, uint64_t max_bytes)
    : path_(std::move(path)), fd_(fd), max_bytes_(max_bytes) {}

IterationLog::IterationLog(IterationLog&& other) noexcept : IterationLog({}, -1, 0) {
  *this = std::move(other);
}

IterationLog& IterationLog::operator=(IterationLog&& other) noexcept {
  path_ = std::move(other.path_);
  std::swap(fd_, other.fd_);  // the other closes what this one had open
  max_bytes_ = other.max_bytes_;
  bytes_ = other.bytes_;
  moves_ = other.moves_;
  moved_bytes_ = other.moved_bytes_;
  status_ = std::move(other.status_);
  return *this;
}

IterationLog::~IterationLog() {
  if (fd_ >= 0) ::close(fd_);
}

// The descriptor from before the fork may be of a file that was renamed or removed since.
Status IterationLog::go_on() {
  std::error_code error;
  const std::filesystem::file_status file = std::filesystem::status(path_, error);
  const bool is_other = std::filesystem::exists(file) && !std::filesystem::is_regular_file(file);
  if (is_other) return {};  // a pipe or a device: as it is
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return unwritable(errno);
  ::close(std::exchange(fd_, fd));
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  off_t end = size;
  for (char last = 0; end > 0; --end) {
    if (::pread(fd_, &last, 1, end - 1) != 1) return unwritable(errno);
    if (last == '\n') break;
  }
  if (size < 0 || ::ftruncate(fd_, end) != 0 || ::lseek(fd_, end, SEEK_SET) != end) {
    return unwritable(errno);
  }
  bytes_ = static_cast<uint64_t>(end);
  return {};
}

void IterationLog::add(const online::Rebalance& rebalance) {
  moves_ += rebalance.moves;
  moved_bytes_ += rebalance.bytes;
}

void IterationLog::add(const IterationSummary& summary) {
  nlohmann::ordered_json line = {{"timestamp", utc_now()},
                                 {"iter", summary.iteration},
                                 {"iterLatencyMS", summary.wall_ms},
                                 {"numActiveRequests", summary.queue.running},
                                 {"numQueuedRequests", summary.queue.waiting},
                                 {"kvCacheStats", cache_json(summary.queue)},
                                 {"inflightBatchingStats", batch_json(summary)},
                                 {"imbalanceRatio", summary.imbalance_ratio()},
                                 {"criticalPathMS", summary.critical_path_ms},
                                 {"criticalPathExpertsMS", summary.critical_path_experts_ms},
                                 {"meanRankMS", summary.mean_rank_ms},
                                 {"expertMoves", std::exchange(moves_, 0)},
                                 {"movedBytes", std::exchange(moved_bytes_, 0)}};
  if (summary.speculation.drafts > 0) line["specDecodingStats"] = drafts_json(summary);
  if (!status_.ok()) return;
  status_ = append(formats::json_text(line) + "\n");
}

Status IterationLog::append(std::string_view line) {
  if (max_bytes_ > 0 && bytes_ > 0 && bytes_ + line.size() > max_bytes_) WIDEEP_TRY(rotate());
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = errno;
      // A part of a line would not be JSON. Pipes and devices cannot be cut.
      [[maybe_unused]] const int cut = ::ftruncate(fd_, static_cast<off_t>(bytes_));
      return unwritable(error);
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  bytes_ += line.size();
  return {};
}

// The full file is renamed first: if the new one cannot be created, no line is lost.
Status IterationLog::rotate() {
  if (::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return unwritable(errno);
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return unwritable(errno);
  ::close(std::exchange(fd_, fd));
  bytes_ = 0;
  return {};
}

Status IterationLog::unwritable(int error) const {
  return failed(
      fmt::format("--iteration-log {}: cannot be written: {}", path_, std::strerror(error)));
}

Result<std::optional<IterationLog>> create_iteration_log(const RunOptions& options) {
  if (options.iteration_log.empty() || !receives_events(options))
    return std::optional<IterationLog>();
  WIDEEP_TRY_ASSIGN(IterationLog log,
                    IterationLog::create(options.iteration_log, options.iteration_log_max_bytes));
  return std::optional<IterationLog>(std::move(log));
}

}  // namespace wideep::run
