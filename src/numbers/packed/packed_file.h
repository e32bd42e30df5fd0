// SPDX-License-Identifier: Apache-2.0
//
// The weights of a model as kernels read them, in a directory of two files, so that a start neither
// reads the checkpoint nor packs it again:
//
//   records     the parts, one behind the other, each from a multiple of 4,096 bytes on
//   index.json  {"wideep_packed": 1, "model": "...", "class": "...", "steps": ["...", ...],
//                "parts": {"<name>": [offset, bytes, scale, hash, ...], ...}}
//
// A part is whatever the loader was asked for: a packed matrix, rows, numbers, or the record of an
// expert. Its hashes (base/content_hash.h) are of pieces of kPieceBytes each: nothing is used that
// does not have them. scale: the bits of a float32 (PackedMatrix::scale). The class says everything
// that decides the bytes of the parts; files of another one are refused. A step is what was written
// together. index.json is written last: a directory without it is not finished. More steps may be
// added later; who has opened the file before does not see them.
//
// Thread safety: immutable after open.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/mapped_file.h"
#include "wideep/status.h"

namespace wideep::packed {

// Of the files, and of the packed forms of matrices (kernels/packed_matrix.h).
inline constexpr int kVersion = 1;
inline constexpr uint64_t kAlignment = 4096;
inline constexpr uint64_t kPieceBytes = uint64_t{64} << 20;

inline constexpr const char* kRecordsFile = "records";
inline constexpr const char* kIndexFile = "index.json";
// Behind the directory's name, until it is finished, and a file in it that its writer has locked.
inline constexpr const char* kUnfinished = ".unfinished";
inline constexpr const char* kProgressFile = "progress";

struct Part {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  float scale = 1.0f;
  std::vector<uint64_t> hashes;  // of its pieces

  int num_pieces() const { return static_cast<int>((bytes + kPieceBytes - 1) / kPieceBytes); }
  uint64_t piece_bytes(int piece) const {
    return std::min(kPieceBytes, bytes - static_cast<uint64_t>(piece) * kPieceBytes);
  }
};

class PackedFile {
 public:
  // Maps the records. expected_class: "": any. Errors (invalid input): no such directory, not
  // finished, of another version or class, records that are shorter than the index says.
  static Result<PackedFile> open(const std::string& directory, const std::string& expected_class);

  const std::string& directory() const { return directory_; }
  const std::string& model() const { return model_; }
  const std::string& record_class() const { return record_class_; }
  // Where this file's records can be opened, by this process and those that it forks, as long as
  // this lives: also when they have been removed since, or another file has taken their name.
  std::string records_path() const;
  const std::map<std::string, Part>& parts() const { return parts_; }
  const std::set<std::string>& steps() const { return steps_; }
  uint64_t total_bytes() const;  // of all parts

  // nullptr: there is no such part.
  const Part* find(const std::string& name) const;
  // As mapped; nobody has compared it with its hashes.
  std::span<const std::byte> bytes(const Part& part) const;
  // Copies a piece of a part to where the part's piece belongs in `out`, memory of the whole part.
  // Errors (failed): it differs from its hash: the disk or memory is faulty.
  Status copy_piece(const std::string& name, int piece, std::byte* out) const;

  // Compares all parts with their hashes, in the order of the file. progress: called with bytes
  // read, from any thread, one call at a time. Errors (failed): how many differ, and the first.
  Status verify(base::ThreadPool& threads,
                const std::function<void(uint64_t bytes)>& progress) const;

 private:
  Status damaged(const std::string& name, int piece) const;

  std::string directory_, model_, record_class_;
  std::map<std::string, Part> parts_;
  std::set<std::string> steps_;
  formats::MappedFile records_;
  std::shared_ptr<const int> descriptor_;  // of the same
};

// A part as index.json has it. Errors (invalid input): what is no part, in `where`.
nlohmann::json to_json(const Part& part);
Result<Part> part_of(const nlohmann::json& value, const std::string& where);

}  // namespace wideep::packed
