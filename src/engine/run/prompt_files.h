// SPDX-License-Identifier: Apache-2.0
//
// Prompts as files: records of a prompt are copied from the places where they are kept to an
// archive, and from there to the places of another service. An archive is a directory of segments
// (docs/prompt_cache_format.md) of its own; each of its records is whole, whatever the layout of
// the ranks that wrote its parts, so that a service of any layout takes it.
//
//   export_prompt(names of the tokens ──▶ Places) ──▶ archive
//   import_archive(archive ──▶ checks ──▶ Places)
//
// Nobody can check that bytes are what the model would have computed: who imports an archive trusts
// who wrote it. Everything else is checked.
//
// Both take as long as the records need. goes_on, where there is one, is asked before each of them;
// false ends the work with an error (failed).
//
// Thread safety: pure functions; the places have one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/places.h"
#include "wideep/status.h"

namespace wideep::run {

// What records of the model are.
struct RecordForm {
  std::string record_class;  // of their root_name()
  uint64_t page_bytes = 0;   // of the canonical form
  uint64_t state_bytes = 0;  // likewise; 0: the model keeps no states
};

// The full pages of a prompt, whole: [tokens ÷ kPageTokens].
std::vector<store::Head> pages_of(const RecordForm& form, std::span<const int32_t> tokens,
                                  std::string_view salt);

struct ExportOrder {
  std::string path;  // of the archive, which is not there yet
  std::span<const int32_t> tokens;
  std::string_view salt;
  double page_seconds = 0.0;  // that computing a page takes: its worth where it is imported
  // Pages are written behind: those that are missing are waited for, but no longer than this.
  std::chrono::milliseconds patience{2000};
  std::function<bool()> goes_on = nullptr;
};

struct ExportedPrompt {
  int64_t pages = 0, states = 0;
  int64_t missing = 0;  // full pages of the prompt that no place has
  uint64_t bytes = 0;   // of payloads
};

// The archive is there when all is in it, and not before; without any page none is made. Errors: it
// is there already (invalid input); it cannot be written (failed). They leave nothing.
Result<ExportedPrompt> export_prompt(const RecordForm& form, const ExportOrder& order,
                                     store::Places& places);

// Of records.
struct SkippedRecords {
  uint64_t other_class = 0;  // of another model, precision or instruction set
  uint64_t wrong = 0;        // other sizes than the model's, or a name that its tokens do not have
  uint64_t damaged = 0;      // without their checksum
  uint64_t foreign = 0;      // other versions; other files
  uint64_t refused = 0;      // no place keeps them

  uint64_t all() const { return other_class + wrong + damaged + foreign + refused; }
};

struct ImportedArchive {
  int64_t pages = 0, states = 0;  // that a place keeps now, or kept before
  uint64_t bytes = 0;             // of their payloads
  SkippedRecords skipped;
};

// Changes nothing in the archive. What is skipped is told in a line. Errors: as read_archive(). What
// was imported before one stays.
Result<ImportedArchive> import_archive(const RecordForm& form, const std::string& path,
                                       store::Places& places,
                                       const std::function<bool()>& goes_on = nullptr);

}  // namespace wideep::run
