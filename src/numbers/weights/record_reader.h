// SPDX-License-Identifier: Apache-2.0
//
// Reads records of one file, as fast as the disk gives them, and compares them with their hashes.
// A record is read in pieces, of which `depth` are in flight together, each by a thread of its own,
// which also hashes: whoever submits gets memory that is whole, or hears that it is not.
//
//   submit ─► waits ─► its pieces are read ─► its hash is right ──────────────────► kWhole
//                │       │   │                └► wrong: read once more ─► wrong ───► kDamaged
//                │       │   └► the system refuses, or the file ends ─────────────► kFailed
//                │       └► the deadline passes ─► kLate, lent ─► the last read ends ─► kReturned
//                └► cancel(): nothing more is heard of it; the deadline passes ───► kLate
//
// Late: a read that the disk does not answer cannot be stopped, and the kernel writes to its memory
// whenever the disk comes back. So the order is reported in time, but its memory stays lent
// (Completion::is_lent) until kReturned. A copy from memory of the reader's own would return at
// once, for another pass over all bytes, which the ranks need for their own reading.
//
// Urgent orders, which somebody waits for, come before those of background, piece by piece, and
// those take at most half of the depth: an urgent one finds a disk with a short queue.
//
// Orders' memory should be in huge pages: a disk then gets a few long ranges of memory, not one for
// each 4 KiB, which halves its bandwidth and takes 0.07 s of a core for each GB rather than 0.02.
//
// Threads rather than io_uring: see record_reader.cc.
//
// Thread safety: any thread, one at a time in open() and the destructor. The threads begin in
// open(): a process that forks does so before.
//
//   WIDEEP_TRY_ASSIGN(auto reader, RecordReader::open(path, {.memory = slots}));
//   const RecordOrder order = {.ticket = 7, .offset = at, .into = slot, .bytes = n, .hash = h};
//   reader->submit({&order, 1});
//   while (const auto completion = reader->wait(deadline_ns)) {
//     if (completion->end != RecordEnd::kWhole) log(reader->status_of(*completion));
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weights/direct_input.h"
#include "weights/record_orders.h"
#include "wideep/status.h"

namespace wideep::weights {

struct RecordReaderOptions {
  int depth = 8;                             // pieces in flight, at least 1
  uint64_t piece_bytes = uint64_t{1} << 20;  // a multiple of 4,096
  std::vector<int> processors;               // of the threads; empty: any
  // What owns the memory of all orders. With it the destructor leaves a disk that hangs after two
  // seconds, and the memory goes when the last read has ended. Null: it waits for that.
  std::shared_ptr<const void> memory;
  DirectInput::ReadPiece read_piece;  // for tests; empty: ::pread
};

class RecordReader {
 public:
  // Errors (invalid input): those of DirectInput::open. Errors (failed): no thread can be started.
  static Result<std::unique_ptr<RecordReader>> open(const std::string& path,
                                                    RecordReaderOptions options);
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;
  // Orders that have not ended are dropped; waits until no memory is written to (see
  // RecordReaderOptions::memory).
  ~RecordReader();

  const std::string& path() const;
  // false: the file system allows reads through the page cache only.
  bool is_direct() const;
  // For logs: "8 threads, pieces of 1.0 MiB, past the page cache".
  std::string description() const;

  void submit(std::span<const RecordOrder> orders);
  // Drops an order of which no piece has been begun. false: it has; its end will be reported.
  bool cancel(uint64_t ticket);
  // An order of background that somebody waits for now. Nothing happens if it has ended.
  void make_urgent(uint64_t ticket);

  // The next end that is known, in the order of the ends. Deadlines of orders are looked at here
  // and in wait().
  std::optional<Completion> poll();
  // Waits for it; at once nullopt where no order is open, or at the deadline (base::wall_ns()).
  std::optional<Completion> wait(int64_t deadline_ns);

  // Why a record has not come, in one line. Ok for kWhole and kReturned.
  Status status_of(const Completion& completion) const;
  RecordCounters counters() const;

 private:
  // What the threads share, which outlives the reader where a disk hangs.
  class Work;

  explicit RecordReader(std::shared_ptr<Work> work) : work_(std::move(work)) {}

  std::shared_ptr<Work> work_;
  std::vector<std::thread> threads_;
};

}  // namespace wideep::weights
