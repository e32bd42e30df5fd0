// SPDX-License-Identifier: Apache-2.0
//
// What a disk gives to whoever reads records of a file at random: the bound of a RecordReader.
// Measure it in the same process: disks of virtual machines differ from minute to minute, and what
// their host keeps in its own memory counts as read from the disk.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <string>

#include "wideep/status.h"

namespace wideep::weights {

struct BandwidthProbe {
  uint64_t record_bytes = 0;                 // of records one behind the other from byte 0 on
  uint64_t num_bytes = 0;                    // to be read at least
  int depth = 8;                             // pieces in flight, as RecordReaderOptions
  uint64_t piece_bytes = uint64_t{1} << 20;  // a multiple of 4,096
};

// Bytes per second. Nothing is hashed, and each thread's pieces go to the same memory.
// Errors (invalid input): those of DirectInput::open, a file smaller than a record.
// Errors (failed): it cannot be read.
// REQUIRES: record_bytes is a multiple of 4,096, and no number is 0.
Result<double> measure_read_bandwidth(const std::string& path, const BandwidthProbe& probe);

}  // namespace wideep::weights
