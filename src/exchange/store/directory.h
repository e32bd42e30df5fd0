// SPDX-License-Identifier: Apache-2.0
//
// A directory as a place: segments, files that processes append records to, each to one of its own
// (segment.h; the format: docs/prompt_cache_format.md).
//
//   auto directory = Directory::open({.path = "/nvme/prompts",
//                                     .max_bytes = uint64_t{500} << 30,
//                                     .record_class = record_class});
//
// Servers on one machine, or on several with a shared file system that has locks, share it: what
// one has written the others find within kPollInterval. A server that dies at any instruction loses
// the record that it was writing, and nothing else; a machine that loses its power, what the file
// system has not written down: what has no checksum is no record. What does not fit into max_bytes
// goes, by its worth (directory_index.h), and max_bytes is of all that share the directory.
//
// A full or read-only disk ends the writing, with a line, and not the reading; it is tried again,
// after kFirstRetry and up to kLastRetry later. No decision asks the wall clock.
//
// Thread safety: as of places, one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "store/place.h"
#include "store/record_reader.h"
#include "store/segment_set.h"
#include "store/segment_writer.h"

namespace wideep::store {

struct DirectoryOptions {
  std::string path;
  uint64_t max_bytes = 0;
  std::string record_class;    // as of the records' root_name()
  uint64_t segment_bytes = 0;  // capacity of new segments; 0: by max_bytes
};

class Directory : public Place {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{200};
  static constexpr std::chrono::seconds kFirstRetry{1};
  static constexpr std::chrono::seconds kLastRetry{60};
  static constexpr uint64_t kMinBytes = uint64_t{1} << 20;  // of max_bytes

  // Makes the directory, and those that it is in, for this user alone where they are missing, and
  // looks whether it can be read; a line says where nothing can be written to it. Errors: as open().
  static Status check(const DirectoryOptions& wanted);

  // Makes it likewise, and reads the blocks of all records. Errors (invalid input): it cannot be
  // made or read; max_bytes below kMinBytes.
  static Result<std::unique_ptr<Directory>> open(const DirectoryOptions& wanted);

  std::string_view label() const override { return "disk"; }
  std::vector<bool> find(std::span<const Head> heads) override;
  Status fetch(std::span<const FetchOrder> orders,
               const std::function<bool(size_t index, FetchResult result)>& done) override;
  // While writing is off: kRefused. So are records for which there is no room: those whose file
  // would have more than half of max_bytes, say.
  OfferResult offer(const Head& head, std::span<const std::byte> payload, double seconds,
                    const std::function<bool()>& is_intact) override;
  void forget(const Name& name, Kind kind) override;
  // Its last segment is as short as its records; what is offered later begins another. Errors
  // (failed): the disk.
  Status complete();
  PlaceCounts counts() const override;
  bool tells_damage() const override { return true; }
  PlaceSize size() override;

 private:
  using Clock = std::chrono::steady_clock;

  explicit Directory(const DirectoryOptions& options);

  void poll_now_and_then();
  OfferResult writing_failed(int error);
  void writing_works();

  DirectoryOptions options_;
  Name record_class_;
  SegmentSet segments_;
  RecordReader reader_;
  SegmentWriter writer_;
  PlaceCounts counts_;  // without those of the parts
  BlockMemory memory_;

  Clock::time_point polled_;
  bool has_poll_failed_ = false;
  bool is_writing_off_ = false;
  Clock::time_point retry_at_;
  Clock::duration retry_after_ = kFirstRetry;
};

}  // namespace wideep::store
