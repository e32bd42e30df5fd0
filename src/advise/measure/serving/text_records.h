// SPDX-License-Identifier: Apache-2.0
//
// Data sets on this machine as records, each a JSON object: JSON lines, a JSON array of objects, or
// CSV with a row of names. A folder may have them as Hugging Face's data sets do: by configuration
// and split.
//
//   data.jsonl                                     one file
//   folder/train-00000-of-00002.jsonl              folder, split "train"
//   folder/3.0.0/validation/part.csv               folder, configuration "3.0.0", split "validation"
//
// Thread safety: functions without state; they read files.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::measure {

struct RecordSource {
  std::string path;           // a file or a folder
  std::string configuration;  // a folder in it; "": none
  std::string split;          // of a folder; of a file it has no effect
};

// The files of a source, in the order of their names. Errors (invalid input): neither a file nor a
// folder; a folder without a split that is called for, or without a file of it.
Result<std::vector<std::string>> record_files(const RecordSource& source);

// Calls take(record) for each record of the file, until it returns false or an error, which gets
// the place. Returns whether it has gone through all. Values of CSV are strings. Errors (invalid
// input): the file cannot be read; it is of Parquet, Arrow or packed; it is malformed.
Result<bool> for_each_record(const std::string& file,
                             const std::function<Result<bool>(const nlohmann::json&)>& take);

}  // namespace wideep::measure
