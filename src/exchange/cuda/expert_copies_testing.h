// SPDX-License-Identifier: Apache-2.0
//
// Copies of experts' records drawn at random, on devices (GPUs or emulated): every byte and every
// hash has to be what the CPU's mover has (base::copy_and_hash).
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "cuda/expert_copies.h"

namespace wideep::cuda {

struct CopyCase {
  struct Record {
    size_t num_bytes = 0;
    int misaligned_by = 0;   // of the source, bytes
    bool is_spoilt = false;  // one bit of the source is not what the hash was computed from
  };
  std::vector<Record> records;
  ExpertCopyOptions options;
  int stop_after = -1;  // pieces, before which all copies begin once more; −1: never
  uint64_t seed = 1;
};

CopyCase random_copies(std::mt19937_64& random, size_t max_bytes);

// Plays the case in a stream of the devices. Errors: what kernels did wrong (failed), or the first
// difference.
Status play_copies(Devices& devices, int stream, const CopyCase& c);

// Rank 1 fetches a record and offers it; rank 0 waits for the offer, copies it, and says that it
// has; then rank 1 puts another record into the same place.
class TwoRanks {
 public:
  TwoRanks(Devices& devices, int stream_of_0, int stream_of_1);

  // Errors: what kernels did wrong, or what became of the copies.
  Status all();
  // Rank 0 only, whose fetch is not offered.
  Status fetch_only();

 private:
  static constexpr size_t kRecordBytes = 3000;
  static constexpr uint32_t kTicket = 7;

  Status allocate();
  RecordCopy fill() const;
  RecordCopy fetch() const;
  RecordCopy refill() const;
  Result<ExpertCopies> begin(int stream, const RecordCopy& copy);

  Devices& devices_;
  const int stream_of_0_, stream_of_1_;
  std::byte *host_ = nullptr, *other_ = nullptr, *slot_ = nullptr, *copy_ = nullptr;
  uint32_t *offered_ = nullptr, *taken_ = nullptr;
  uint64_t hash_ = 0, other_hash_ = 0;
  Status allocated_;  // last: it fills in what stands above
};

}  // namespace wideep::cuda
