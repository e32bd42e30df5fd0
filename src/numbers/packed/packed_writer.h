// SPDX-License-Identifier: Apache-2.0
//
// Writes the directory of a PackedFile, in steps. What a step has written counts when it has ended
// and is on the disk, and stays where the process dies, so that the next writer goes on behind it.
// Until the first finish() the directory is called "<directory>.unfinished". One process writes it
// at a time. A thread writes while the caller makes the next parts (packed/direct_output.h): errors
// come with a later call, with finish() at the latest.
//
//   WIDEEP_TRY_ASSIGN(PackedWriter writer, PackedWriter::open(directory, {...}));
//   for each step:
//     if (writer.has(step)) continue;   // of an earlier process
//     WIDEEP_TRY(writer.add("name", bytes, scale)); ...
//     WIDEEP_TRY(writer.end(step));
//   return writer.finish();
//
// A disk that is full ends the writing with an error, and what was written since the last finish()
// is removed: it would only be in the way of what the disk is needed for. After an error the writer
// must not be used any more.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "packed/direct_output.h"
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

  // Of an earlier process that did not finish.
  uint64_t resumed_bytes() const { return resumed_; }
  bool has(const std::string& step) const { return steps_.contains(step); }
  bool has_part(const std::string& name) const {
    return parts_.contains(name) || added_.contains(name);
  }
  // Errors (invalid input): the name is taken. Errors (failed): not writable, disk full.
  Status add(const std::string& name, std::span<const std::byte> bytes, float scale = 1.0f);
  // Of what was added since the last call.
  Status end(const std::string& step);
  // When it returns, all is on the disk.
  Status finish();

 private:
  PackedWriter(std::string directory, Options options)
      : directory_(std::move(directory)), options_(std::move(options)) {}
  std::string path(const char* file) const { return at_ + "/" + file; }
  bool is_new() const { return at_ != directory_; }
  Status lock();
  Status read_finished();
  Status resume();
  bool take_step(const nlohmann::json& line);
  Status start();
  void note_steps();
  void remove_added();
  Status check_room();
  Status check(int error);
  Status failure(const std::string& what);
  void close();

  std::string directory_, at_;  // where it will be, and where it is
  Options options_;
  int progress_ = -1;  // descriptor with the lock
  std::unique_ptr<DirectOutput> records_;
  std::string unnoted_;  // lines of steps that have ended, for `progress`
  uint64_t noted_ = 0;   // end_ when others were
  uint64_t resumed_ = 0;
  uint64_t finished_ = 0;              // bytes of records that index.json knows
  uint64_t end_ = 0;                   // of all parts that are added
  std::map<std::string, Part> parts_;  // of steps that have ended
  std::map<std::string, Part> added_;  // since
  std::set<std::string> steps_;
};

}  // namespace wideep::packed
