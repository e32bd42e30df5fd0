// SPDX-License-Identifier: Apache-2.0
//
// Writes the directory of a PackedFile, in steps. What a step has written counts when it has ended,
// and stays where the process dies, so that the next writer goes on behind it. Until the first
// finish() the directory is called "<directory>.unfinished". One process writes it at a time.
//
//   WIDEEP_TRY_ASSIGN(PackedWriter writer, PackedWriter::open(directory, {...}));
//   for each step:
//     if (writer.has(step)) continue;   // of an earlier process
//     WIDEEP_TRY(writer.add("name", bytes, scale)); ...
//     WIDEEP_TRY(writer.end(step));
//   return writer.finish();
//
// A disk that is full ends the writing with an error, and what was written since the last finish()
// is removed: it would only be in the way of what the disk is needed for.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>

#include "packed/packed_file.h"
#include "wideep/status.h"

namespace wideep::packed {

class PackedWriter {
 public:
  struct Options {
    std::string model;            // for people
    std::string record_class;     // as PackedFile::open() expects it
    uint64_t expected_bytes = 0;  // that are added, for an early error; 0: not known
  };
  // Errors (invalid input): the directory cannot be made, or has another class; another process
  // writes it.
  // Errors (failed): there is less room than expected_bytes.
  static Result<PackedWriter> open(const std::string& directory, Options options);
  PackedWriter(PackedWriter&& other) noexcept;
  PackedWriter& operator=(PackedWriter&&) = delete;
  ~PackedWriter();

  bool has(const std::string& step) const { return steps_.contains(step); }
  bool has_part(const std::string& name) const {
    return parts_.contains(name) || added_.contains(name);
  }
  // Errors (invalid input): the name is taken. Errors (failed): not writable, disk full.
  Status add(const std::string& name, std::span<const std::byte> bytes, float scale = 1.0f);
  // When it returns, what was added since the last call is on the disk.
  Status end(const std::string& step);
  Status finish();

  uint64_t written_bytes() const { return end_; }

 private:
  PackedWriter(std::string directory, Options options)
      : directory_(std::move(directory)), options_(std::move(options)) {}
  std::string path(const char* file) const { return at_ + "/" + file; }
  bool is_new() const { return at_ != directory_; }
  Status lock();
  Status read_finished();
  Status resume();
  Status start();
  void remove_added();
  Status check_room() const;
  Status write(std::span<const std::byte> bytes, uint64_t at);
  Status failure(const std::string& what);
  void close();

  std::string directory_, at_;  // where it will be, and where it is
  Options options_;
  int records_ = -1, progress_ = -1;   // descriptors; the lock is on the latter
  uint64_t finished_ = 0;              // bytes of records that index.json knows
  uint64_t end_ = 0;                   // of all parts that are added
  std::map<std::string, Part> parts_;  // of steps that have ended
  std::map<std::string, Part> added_;  // since
  std::set<std::string> steps_;
};

}  // namespace wideep::packed
