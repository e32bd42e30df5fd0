// SPDX-License-Identifier: Apache-2.0
//
// A payload is read when the scanner has found its block, by another read of the same file, so that
// one record is in memory at a time, however many there are.
#include "store/archive_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/content_hash.h"
#include "store/direct_file.h"
#include "store/segment.h"
#include "store/segment_scanner.h"
#include "store/use_counts.h"

namespace wideep::store {
namespace {

struct ListedSegment {
  uint64_t sequence = 0;
  uint64_t id = 0;
  auto operator<=>(const ListedSegment&) const = default;
};

class ArchiveReader {
 public:
  ArchiveReader(std::string path, const RecordVisitor& visitor)
      : path_(std::move(path)), visitor_(visitor) {}

  Result<UnreadCounts> read() {
    std::vector<ListedSegment> segments;
    if (const Status status = list(segments); !status.ok()) return status;
    std::sort(segments.begin(), segments.end());
    for (const ListedSegment& each : segments) {
      if (has_ended_) break;
      if (const int error = read_segment(each.id); error != 0) {
        return failed(fmt::format("{}/{}: cannot be read: {}", path_, Segment::file_name(each.id),
                                  std::strerror(error)));
      }
    }
    return counts_;
  }

 private:
  Status list(std::vector<ListedSegment>& segments) {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR* directory = fd < 0 ? nullptr : ::fdopendir(fd);
    if (directory == nullptr) {
      const int error = errno;
      if (fd >= 0) ::close(fd);
      return invalid_input(
          fmt::format("{}: expected a directory with an archive: {}", path_, std::strerror(error)));
    }
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == ".." || name == UseCounts::kFileName) continue;
      const auto id = Segment::id_of(name);
      const auto sequence = id ? sequence_of(*id) : std::nullopt;
      if (sequence) {
        segments.push_back({.sequence = *sequence, .id = *id});
      } else {
        ++counts_.foreign;
      }
    }
    ::closedir(directory);
    return {};
  }

  std::string file_of(uint64_t id) const { return path_ + "/" + Segment::file_name(id); }

  // nullopt: it is no segment of this version.
  std::optional<uint64_t> sequence_of(uint64_t id) {
    DirectFile file;
    DirectFile::State state;
    if (file.open_to_read(file_of(id)) != 0 || file.state(state) != 0) return std::nullopt;
    const std::span block(memory_.at_least(kBlockBytes), kBlockBytes);
    if (state.size < kBlockBytes || file.read(0, block) != 0) return std::nullopt;
    SegmentHead head;
    switch (read_block(ConstBlockBytes(block.data(), kBlockBytes), head)) {
      case BlockKind::kWhole:
        return head.id == id ? std::optional(head.sequence) : std::nullopt;
      case BlockKind::kUnreadable:  // its records know where they belong
        ++counts_.damaged;
        return 0;
      case BlockKind::kEmpty:
      case BlockKind::kOtherVersion:
        break;
    }
    return std::nullopt;
  }

  // Returns what errno says.
  int read_segment(uint64_t id) {
    DirectFile file;
    DirectFile::State state;
    int error = file.open_to_read(file_of(id));
    if (error == 0) error = file.state(state);
    if (error != 0) return error;
    SegmentScanner scanner(id);
    error = scanner.scan(file, state.size, /*is_complete=*/true,
                         [&](const RecordHead& record) { visit(file, record); });
    counts_.damaged += scanner.unreadable();
    counts_.foreign += scanner.of_other_versions();
    return error;
  }

  void visit(DirectFile& file, const RecordHead& record) {
    if (has_ended_ || !visitor_.wants(record)) return;
    const uint64_t bytes = round_up_to_block(record.payload_bytes);
    const std::span memory(memory_.at_least(bytes), bytes);
    const auto payload = memory.first(record.payload_bytes);
    if (file.read(record.payload_offset(), memory) != 0 ||
        base::content_hash(payload.data(), payload.size()) != record.payload_hash) {
      ++counts_.damaged;
      return;
    }
    has_ended_ = !visitor_.take(record, payload);
  }

  std::string path_;
  const RecordVisitor& visitor_;
  UnreadCounts counts_;
  BlockMemory memory_;
  bool has_ended_ = false;
};

}  // namespace

Result<UnreadCounts> read_archive(const std::string& path, const RecordVisitor& visitor) {
  return ArchiveReader(path, visitor).read();
}

}  // namespace wideep::store
