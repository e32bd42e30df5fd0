// SPDX-License-Identifier: Apache-2.0
//
// What `wideep doctor` finds in a directory of packed files (--packed-cache): it changes none.
//
// Thread safety: for one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::tools {

struct PackedEntry {
  enum class State { kFinished, kUnfinished, kBeingWritten, kUnusable };

  std::string name;  // of its directory
  State state = State::kFinished;
  uint64_t bytes = 0;        // of its parts; of one that is not finished: of what is there
  size_t num_parts = 0;      // if it is finished
  std::string record_class;  // likewise
  std::string trouble;       // why it cannot be used, or what is damaged; "": nothing
};

struct PackedCache {
  std::string directory;
  std::vector<PackedEntry> entries;  // by name
  std::optional<uint64_t> free_bytes;
  bool is_verified = false;
};

// verify: compares all finished files with their hashes, on all cores, and shows the progress.
// Errors (invalid input): not readable; with `verify` also no such directory.
Result<PackedCache> look_at_packed(const std::string& directory, bool verify);

// How many cannot be used, of another version, cut short or damaged, and the first; ok: none.
Status outcome_of(const PackedCache& cache);

}  // namespace wideep::tools
