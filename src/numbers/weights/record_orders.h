// SPDX-License-Identifier: Apache-2.0
//
// The orders of a RecordReader (record_reader.h) and how far each has come: which piece is read
// next, which is hashed next, and how an order ends. No threads and no files are in here.
//
// Thread safety: none; the reader's mutex guards it. Outside of the mutex a thread may use, of a
// job, the order, the memory of a piece that it reads, and the hash between next_to_hash() and
// end_hash().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <optional>
#include <vector>

#include "base/content_hash.h"

namespace wideep::weights {

struct RecordOrder {
  uint64_t ticket = 0;        // the caller's; unique among those whose end is not known
  uint64_t offset = 0;        // in the file, a multiple of 4,096
  std::byte* into = nullptr;  // a multiple of 4,096, of `bytes` rounded up to such
  uint64_t bytes = 0;         // of the record, at least 1; what is behind them is undefined
  uint64_t hash = 0;          // base::content_hash of the bytes
  bool is_urgent = true;      // somebody waits for it
  int64_t deadline_ns = std::numeric_limits<int64_t>::max();  // by base::wall_ns()
};

enum class RecordEnd : uint8_t {
  kWhole,
  kDamaged,   // read twice, neither time with its hash
  kFailed,    // `error` says why
  kLate,      // its deadline has passed
  kReturned,  // of one that was late and lent: its memory is no longer written to
};

struct Completion {
  uint64_t ticket = 0;
  uint64_t offset = 0;
  RecordEnd end = RecordEnd::kWhole;
  int error = 0;         // kFailed: errno; ENODATA: the file ends before the record does
  bool is_lent = false;  // kLate: its memory is still written to, until kReturned
};

struct RecordCounters {
  uint64_t bytes = 0;   // read, also of records that were not whole
  double busy_s = 0.0;  // with at least one piece in flight
  uint64_t whole = 0;   // records by end
  uint64_t damaged = 0;
  uint64_t failed = 0;
  uint64_t late = 0;
  uint64_t read_again = 0;  // because of a wrong hash
};

class RecordOrders {
 public:
  // An order that is open. The objects are used again, so that an order allocates nothing.
  struct Job {
    RecordOrder order;
    base::StreamedHash hash;    // of the pieces before `hashed`
    std::vector<bool> arrived;  // pieces that are in memory
    size_t begun = 0;           // pieces before it are read or being read
    size_t hashed = 0;          // pieces before it are hashed
    int num_threads = 0;        // that have a piece of it
    int error = 0;
    bool is_hashed_now = false;  // by one of them
    bool is_late = false;
    bool is_read_again = false;
    std::list<Job>* list = nullptr;
    std::list<Job>::iterator self;

    bool is_given_up() const { return is_late || error != 0; }
  };
  struct Piece {
    Job* job = nullptr;
    size_t index = 0;
    uint64_t begin = 0;  // in the record
    uint64_t bytes = 0;
    bool is_urgent = false;
  };

  RecordOrders(int depth, uint64_t piece_bytes) : depth_(depth), piece_bytes_(piece_bytes) {}

  // Returns the number of its pieces.
  size_t add(const RecordOrder& order);
  bool cancel(uint64_t ticket);
  bool make_urgent(uint64_t ticket);
  bool is_any_open() const { return !urgent_.empty() || !background_.empty() || !begun_.empty(); }

  // ---- of one piece, in this order, by one thread ----

  bool has_piece_to_read() const;
  // REQUIRES: has_piece_to_read().
  Piece begin_read();
  void end_read(const Piece& piece, int error);
  // The piece that the calling thread hashes now; nullopt: none has arrived, or another thread
  // hashes. Pieces are hashed in order, whichever thread has read them.
  std::optional<Piece> next_to_hash(Job& job);
  void end_hash(Job& job);
  // The thread leaves the job; the last one to leave ends it (true), or has it read again.
  bool leave(Job& job);

  // ---- ends ----

  // Reports those that are late; the deadline of the first that may become so.
  int64_t expire(int64_t now_ns);
  std::optional<Completion> next_end();

  RecordCounters counters() const;

 private:
  size_t num_pieces(const Job& job) const {
    return static_cast<size_t>((job.order.bytes + piece_bytes_ - 1) / piece_bytes_);
  }
  Piece piece(Job& job, size_t index) const;
  void move(Job& job, std::list<Job>& to);
  void start(Job& job);
  bool settle(Job& job);
  bool end(Job& job, RecordEnd end);
  std::list<Job>& waiting(const Job& job) { return job.order.is_urgent ? urgent_ : background_; }

  int depth_;
  uint64_t piece_bytes_;
  std::list<Job> urgent_, background_;  // that have a piece to be read
  std::list<Job> begun_;                // that have none left, or are given up
  std::list<Job> free_;
  std::deque<Completion> ends_;
  int num_reads_ = 0, num_background_reads_ = 0;  // in flight
  int64_t busy_since_ns_ = 0;                     // while num_reads_ > 0
  int64_t busy_ns_ = 0;                           // before
  RecordCounters counters_;
};

}  // namespace wideep::weights
