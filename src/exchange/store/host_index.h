// SPDX-License-Identifier: Apache-2.0
//
// What is in the host tier: an index in memory that processes share, and which blocks have which
// record's bytes.
//
//   header | by name | by page before | heap | next block | slots | blocks
//
// A slot is one part of one record; its bytes are in a chain of blocks. Everything else follows
// from the slots: which blocks and slots are free, the index by name, the heap of what may go. A
// process that dies while it changes something holds the mutex; the next one that wants it builds
// all that follows anew.
//
// What goes first: the fewest seconds of computing per byte, times how often it was of use, as of
// the last use (GreedyDual-Size-Frequency: the clock is the value of what went last, and new values
// are added to it, so that what nobody wants any more goes some time). Where no seconds are known
// that is what was used longest ago. A page that another one continues never goes before that one,
// so that what is there of a sequence is its beginning.
//
// Thread safety: functions below `Lock` need it held. Bytes of blocks are not guarded: who reads
// some compares the slot's generation and the hash afterwards.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/shared_bytes.h"
#include "store/process_mark.h"
#include "store/record.h"
#include "wideep/status.h"

namespace wideep::store {

class HostIndex {
 public:
  static constexpr uint64_t kBlockBytes = uint64_t{64} << 10;
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr double kMaxLeaseSeconds = 10.0;

  enum class SlotState : uint32_t { kFree, kWriting, kReady };

  struct Slot {
    // Last when it is taken, first when it is freed: a slot that is not free has whole chains.
    std::atomic<SlotState> state;
    std::atomic<uint64_t> generation;  // grows when it is freed
    uint32_t first_block, last_block, num_blocks;
    ProcessMark writer;
    Head head;
    uint64_t hash;  // of the payload: XXH3
    double seconds;
    uint32_t hits;
    double leased_until;  // seconds of the steady clock: until then it is not evicted
    // These follow from the others.
    uint32_t next_by_name, next_by_parent;  // in the chains of the buckets; of free slots: the next
    uint32_t next_writing, previous_writing;
    uint32_t heap_at;  // kNone: it is not in the heap
    double priority;
    uint64_t last_use;
  };

  // max_bytes: for payloads, in whole blocks. make: who shares it is its affair. The memory behind
  // is taken as it is used. Errors: invalid_input: less than a block; failed: the kernel refuses.
  static Result<base::SharedBytes> create_memory(uint64_t max_bytes,
                                                 const base::MakeSharedBytes& make);
  // memory: of create_memory(); must outlive the object.
  static Result<HostIndex> open(const base::SharedBytes& memory);

  class Lock {
   public:
    // Errors (failed): another process has had it for longer than anything takes (it is stopped).
    explicit Lock(HostIndex& index) : index_(index), status_(index.acquire(has_mended_)) {}
    ~Lock() {
      if (status_.ok()) index_.release();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    const Status& status() const { return status_; }
    // One that had it before has died, and all that follows from the slots was built anew.
    bool has_mended() const { return has_mended_; }

   private:
    HostIndex& index_;
    bool has_mended_ = false;
    Status status_;
  };

  Slot& slot(uint32_t index) const { return slots_[index]; }
  std::byte* block(uint32_t index) const { return blocks_ + uint64_t{index} * kBlockBytes; }
  uint32_t block_after(uint32_t index) const { return next_block_[index]; }
  uint64_t num_blocks() const;
  // Grows with each record that is ready, and by add_news(): whoever waits for something here need
  // not ask for it while it is the same.
  uint64_t news() const;
  void add_news();
  // From now on nothing is refused for being worth less than what is here: somebody waits for it,
  // and without one page those behind it are of no use.
  void take_all();

  // ---- with the lock ----

  // Slots of which the part can be put together. Empty: there are none, or not ready.
  std::vector<uint32_t> find(const Head& head);
  // The record of these slots, which are ready, is not evicted for so long, at most
  // kMaxLeaseSeconds; nor is what it goes on from, which is leased with it. Nothing happens where
  // more than half of all blocks would be leased: whoever asks for leases must not stop the cache.
  void lease(const std::vector<uint32_t>& slots, double seconds);
  // A slot that is ready has been of use: fetched, or wanted again (is_hit false).
  void used(uint32_t index, bool is_hit, double seconds);

  enum class Room { kTaken, kKnown, kRefused };
  struct Taken {
    Room room = Room::kRefused;
    uint32_t slot = kNone;
    uint64_t evicted = 0;  // slots
  };
  // A slot for a record of this process, in state kWriting, with blocks.
  Taken take(const Head& head, double seconds, const ProcessMark& writer);
  void make_ready(uint32_t index, uint64_t hash);
  void free(uint32_t index);
  void forget(const Name& name, Kind kind);

  struct Size {
    uint64_t records = 0, used_blocks = 0;
  };
  Size size() const;
  // "": all that follows from the slots agrees with them. Else what does not. For tests.
  std::string disagreement();

 private:
  struct Header;

  HostIndex() = default;
  Status acquire(bool& has_mended);
  void release();
  void rebuild();
  void set_pointers(std::byte* memory, uint64_t num_blocks);
  Header& header() const { return *header_; }
  bool is_claimable(const Slot& slot, std::vector<bool>& is_claimed) const;

  uint32_t& name_bucket(const Name& name) const;
  uint32_t& parent_bucket(const Name& name) const;
  void link(uint32_t index);
  void unlink(uint32_t index);
  bool is_continued(const Slot& slot) const;
  bool is_leased(const Slot& slot, double now) const;
  uint64_t leased_blocks(double now) const;
  void lease_until(Slot& slot, double until);
  void end_lease(const Slot& slot);
  template <typename Visit>
  void for_each_page(const Name& name, Visit visit);

  double priority_of(const Slot& slot) const;
  bool is_before(uint32_t a, uint32_t b) const;
  void heap_insert(uint32_t index);
  void heap_remove(uint32_t index);
  void heap_move(uint32_t index);
  void heap_put(uint32_t at, uint32_t index);

  bool make_room(const Head& head, double seconds, uint64_t blocks, uint64_t& evicted);
  void leave_writing(const Slot& slot);
  uint64_t evict(uint32_t index);
  bool grow();
  bool free_dead_writers();

  const base::SharedBytes* memory_ = nullptr;
  Header* header_ = nullptr;
  uint32_t* by_name_ = nullptr;     // [buckets] first slot
  uint32_t* by_parent_ = nullptr;   // [buckets]
  uint32_t* heap_ = nullptr;        // [blocks] slots
  uint32_t* next_block_ = nullptr;  // [blocks] in the chain of its slot, or of free ones
  Slot* slots_ = nullptr;           // [blocks]
  std::byte* blocks_ = nullptr;
  uint64_t buckets_ = 0;
  double no_growth_until_ = 0;  // seconds of the steady clock
  double no_search_until_ = 0;
  bool has_told_growth_ = false;
};

}  // namespace wideep::store
