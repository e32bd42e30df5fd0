// SPDX-License-Identifier: Apache-2.0
//
// A rank's copies of experts' records on a GPU, beside the exchange: what online::WeightUpdater
// does on CPUs. They run in a stream of their own, on few multiprocessors, and in pieces, between
// which the owner decides whether to go on.
//
//   WIDEEP_TRY_ASSIGN(ExpertCopies copies, ExpertCopies::create(devices, stream, options));
//   copies.begin(records);
//   while (wanted && !copies.are_ended()) copies.launch_piece();
//   copies.outcomes();   // each: done, spoilt, not offered, or still under way
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "cuda/devices.h"
#include "wideep/status.h"

namespace wideep::cuda {

struct ExpertCopyOptions {
  int max_copies = 64;                   // of a begin; at most CopyRecords::kMaxCopies
  size_t piece_bytes = size_t{1} << 20;  // of each record and launch
  int num_blocks = 4;                    // as many multiprocessors at most
  int num_threads = 512;                 // of a block
  std::chrono::nanoseconds deadline{std::chrono::seconds{10}};  // of the wait for a source
};

struct CopyOutcome {
  CopyResult result = CopyResult::kUnderWay;
  uint64_t hash = 0;  // of what has been copied; kDone, kSpoilt
};

// ok if the copy is done; else what has happened, with rank, layer, expert and source.
Status copy_status(int rank, const RecordCopy& copy, const CopyOutcome& outcome);

class ExpertCopies {
 public:
  // stream: a place of the devices that no exchange uses (CudaDevices::add_background_stream).
  // Errors (invalid input): numbers that no launch can have; failed: not enough memory.
  static Result<ExpertCopies> create(Devices& devices, int stream,
                                     const ExpertCopyOptions& options);

  // Begins these copies, and forgets all that were begun before: a copy that ended badly can be
  // begun again. Waits for the stream. Errors (invalid input): too many copies; a record that is
  // too small, or not aligned.
  Status begin(std::span<const RecordCopy> copies);
  // Launches the next piece of every copy that is under way. Does not wait.
  Status launch_piece();
  // Whether all pieces have been launched.
  bool are_ended() const { return pieces_left_ == 0; }
  int pieces_left() const { return pieces_left_; }
  // Of every copy. Waits for the stream.
  Result<std::vector<CopyOutcome>> outcomes();

  // Raises these words, of other ranks' memory, after what is in the stream. Waits for the stream.
  Status offer(std::span<uint32_t* const> words, uint32_t ticket);

 private:
  ExpertCopies(Devices& devices, int stream, const ExpertCopyOptions& options)
      : devices_(&devices), stream_(stream), options_(options) {}

  int piece_blocks() const { return static_cast<int>(options_.piece_bytes / kHashBlockBytes); }

  Devices* devices_;
  int stream_;
  ExpertCopyOptions options_;
  int num_copies_ = 0;
  int pieces_left_ = 0;
  RecordCopy* copies_ = nullptr;  // on the device, as all below: [max_copies]
  CopyState* states_ = nullptr;   // [max_copies]
  uint64_t* sums_ = nullptr;      // [max_copies, piece_blocks, kHashAccumulators]
  uint32_t* blocks_done_ = nullptr;
  uint32_t** words_ = nullptr;  // [max_copies] of offer
};

}  // namespace wideep::cuda
