// SPDX-License-Identifier: Apache-2.0
//
// Order of writes, so that a death between any two leaves slots that can be trusted:
//
//   taking    blocks leave the free ones; the slot gets its chain, its head; its state
//   freeing   the slot's generation grows; its state is kFree; its blocks join the free ones
//
// Blocks that no slot claims are free (rebuild).
#include "store/host_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/try.h"
#include "store/part_cover.h"

namespace wideep::store {
namespace {

constexpr uint64_t kMagic = 0x3376'7473'6f68'6577;  // of this layout
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kStepBlocks = 256;  // memory is taken from the kernel in steps of 16 MiB
constexpr size_t kMaxSpared = 256;     // leased records that are passed over, while others wait
constexpr uint32_t kMaxHits = 16;      // what was hot once goes after so many turns of the clock
constexpr auto kMaxWait = std::chrono::seconds(2);
constexpr double kSecondsBetweenSearches = 0.1;  // for dead writers, while there is no room
constexpr double kSecondsBetweenGrowth = 10.0;   // after the kernel had no memory
constexpr double kNearlyAsLong = 0.9;  // what goes before is leased already, by the same question

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A lease is counted until the end of its last second.
uint64_t end_second(double until) { return static_cast<uint64_t>(std::ceil(until)); }
bool is_counted(double until, double now) { return static_cast<double>(end_second(until)) > now; }

uint64_t in_pages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

uint64_t blocks_of(uint64_t bytes) {
  return (bytes + HostIndex::kBlockBytes - 1) / HostIndex::kBlockBytes;
}

// The page that a record goes on from: it has to be there for the record to be of use.
const Name& parent_of(const Head& head) {
  return head.kind == Kind::kState ? head.name : head.before;
}

// Equal but for the part.
bool is_same_record(const Head& a, const Head& b) {
  return a.name == b.name && a.kind == b.kind && a.before == b.before && a.page == b.page &&
         a.canonical_bytes == b.canonical_bytes && a.tokens == b.tokens;
}

}  // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free);  // processes share it

struct HostIndex::Header {
  std::atomic<uint64_t> magic;  // last, when all else is there
  std::atomic<uint32_t> claimed;
  std::atomic<uint64_t> news;
  std::atomic<uint32_t> takes_all;
  uint64_t num_blocks;
  pthread_mutex_t mutex;
  uint64_t made;  // blocks, and slots, whose memory the kernel has given
  double clock;   // value of what went last
  uint64_t uses;
  // These follow from the slots.
  uint32_t free_block, free_slot, writing, heap_size;
  uint64_t free_blocks, records;
  // Blocks whose leases end in this second, at [second % kLeaseSeconds].
  static constexpr uint64_t kLeaseSeconds = 16;
  struct Leases {
    uint64_t second, blocks;
  } leases[kLeaseSeconds];
  static_assert(kLeaseSeconds > kMaxLeaseSeconds + 2);
};

namespace {

struct Offsets {
  uint64_t by_name, by_parent, heap, next_block, slots, blocks, end;
};

template <typename Header>
Offsets offsets_of(uint64_t num_blocks) {
  const uint64_t table = in_pages(num_blocks * sizeof(uint32_t));
  const uint64_t buckets = in_pages(std::bit_ceil(num_blocks) * sizeof(uint32_t));
  Offsets at{};
  at.by_name = in_pages(sizeof(Header));
  at.by_parent = at.by_name + buckets;
  at.heap = at.by_parent + buckets;
  at.next_block = at.heap + table;
  at.slots = at.next_block + table;
  at.blocks = at.slots + in_pages(num_blocks * sizeof(HostIndex::Slot));
  at.end = at.blocks + num_blocks * HostIndex::kBlockBytes;
  return at;
}

Status make_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  int error = ::pthread_mutexattr_init(&attributes);
  if (error == 0) error = ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (error == 0) error = ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  if (error == 0) error = ::pthread_mutex_init(&mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  if (error == 0) return {};
  return failed(fmt::format("host cache: no mutex for processes: {}", std::strerror(error)));
}

}  // namespace

Result<base::SharedBytes> HostIndex::create_memory(uint64_t max_bytes,
                                                   const base::MakeSharedBytes& make) {
  const uint64_t num_blocks = max_bytes / kBlockBytes;
  if (num_blocks == 0 || num_blocks >= kNone) {
    return invalid_input(fmt::format(
        "host cache: its size must be at least {} bytes and less than 256 TiB, found {}",
        kBlockBytes, max_bytes));
  }
  const Offsets at = offsets_of<Header>(num_blocks);
  WIDEEP_TRY_ASSIGN(base::SharedBytes memory,
                    make("host cache", at.end, base::SharedPages::kNormal));
  // Where ranks have made it together, one of them fills it in.
  auto* header = reinterpret_cast<Header*>(memory.data());
  if (header->claimed.exchange(1) != 0) return memory;
  WIDEEP_TRY(memory.reserve(0, at.slots));
  WIDEEP_TRY(make_mutex(header->mutex));
  header->num_blocks = num_blocks;
  header->free_block = header->free_slot = header->writing = kNone;
  std::memset(memory.data() + at.by_name, 0xff, at.heap - at.by_name);  // kNone
  header->magic.store(kMagic, std::memory_order_release);
  return memory;
}

Result<HostIndex> HostIndex::open(const base::SharedBytes& memory) {
  const auto* header = reinterpret_cast<const Header*>(memory.data());
  const auto deadline = std::chrono::steady_clock::now() + kMaxWait;
  const bool is_one = memory.size() > sizeof(Header) && header->claimed.load() == 1;
  while (!is_one || header->magic.load(std::memory_order_acquire) != kMagic) {
    // Where ranks make it together, another one may still fill it in.
    if (!is_one || std::chrono::steady_clock::now() > deadline) {
      return failed("host cache: the memory is not one, or was not filled in");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const uint64_t expected = offsets_of<Header>(header->num_blocks).end;
  if (expected != memory.size()) {
    return failed(fmt::format("host cache: expected {} bytes of memory for {} blocks, found {}",
                              expected, header->num_blocks, memory.size()));
  }
  HostIndex index;
  index.memory_ = &memory;
  index.set_pointers(memory.data(), header->num_blocks);
  return index;
}

void HostIndex::set_pointers(std::byte* memory, uint64_t num_blocks) {
  const Offsets at = offsets_of<Header>(num_blocks);
  header_ = reinterpret_cast<Header*>(memory);
  by_name_ = reinterpret_cast<uint32_t*>(memory + at.by_name);
  by_parent_ = reinterpret_cast<uint32_t*>(memory + at.by_parent);
  heap_ = reinterpret_cast<uint32_t*>(memory + at.heap);
  next_block_ = reinterpret_cast<uint32_t*>(memory + at.next_block);
  slots_ = reinterpret_cast<Slot*>(memory + at.slots);
  blocks_ = memory + at.blocks;
  buckets_ = std::bit_ceil(num_blocks);
}

uint64_t HostIndex::news() const { return header().news.load(std::memory_order_acquire); }

void HostIndex::add_news() { header().news.fetch_add(1, std::memory_order_release); }

void HostIndex::take_all() { header().takes_all.store(1, std::memory_order_relaxed); }

uint64_t HostIndex::num_blocks() const { return header().num_blocks; }

// ---- the lock ----

Status HostIndex::acquire(bool& has_mended) {
  timespec deadline{};
  ::clock_gettime(CLOCK_MONOTONIC, &deadline);
  deadline.tv_sec += kMaxWait.count();
  const int error = ::pthread_mutex_clocklock(&header().mutex, CLOCK_MONOTONIC, &deadline);
  if (error == 0) return {};
  if (error == EOWNERDEAD) {
    rebuild();
    ::pthread_mutex_consistent(&header().mutex);
    has_mended = true;
    return {};
  }
  return failed(fmt::format("host cache: another process holds its lock (is a rank stopped?): {}",
                            std::strerror(error)));
}

void HostIndex::release() { ::pthread_mutex_unlock(&header().mutex); }

// Claims the slot's blocks. False, and nothing is claimed: its chain is not one.
bool HostIndex::is_claimable(const Slot& slot, std::vector<bool>& is_claimed) const {
  if (slot.num_blocks == 0 || slot.num_blocks != blocks_of(slot.head.part.bytes())) return false;
  std::vector<uint32_t> claimed;
  uint32_t block = slot.first_block;
  for (uint32_t i = 0; i < slot.num_blocks; ++i) {
    if (block >= header().made || is_claimed[block]) break;
    is_claimed[block] = true;
    claimed.push_back(block);
    if (i + 1 < slot.num_blocks) block = next_block_[block];
  }
  if (claimed.size() == slot.num_blocks && block == slot.last_block) return true;
  for (const uint32_t each : claimed) is_claimed[each] = false;
  return false;
}

// Reads nothing but slots and their chains, so that it can be begun again after another death.
void HostIndex::rebuild() {
  Header& all = header();
  std::fill_n(by_name_, buckets_, kNone);
  std::fill_n(by_parent_, buckets_, kNone);
  all.free_block = all.free_slot = all.writing = kNone;
  all.heap_size = 0;
  all.free_blocks = all.records = 0;
  std::ranges::fill(all.leases, Header::Leases{});
  std::vector<bool> is_claimed(all.made);
  for (uint64_t i = all.made; i-- > 0;) {
    Slot& each = slots_[i];
    each.heap_at = kNone;
    const SlotState state = each.state.load();
    const bool is_lost = state == SlotState::kWriting && has_ended(each.writer);
    if (state != SlotState::kFree && !is_lost && is_claimable(each, is_claimed)) {
      link(static_cast<uint32_t>(i));
      continue;
    }
    if (state != SlotState::kFree) {
      each.generation.fetch_add(1);
      each.state.store(SlotState::kFree);
    }
    each.next_by_name = all.free_slot;
    all.free_slot = static_cast<uint32_t>(i);
  }
  for (uint64_t i = all.made; i-- > 0;) {
    if (is_claimed[i]) continue;
    next_block_[i] = all.free_block;
    all.free_block = static_cast<uint32_t>(i);
    ++all.free_blocks;
  }
  for (uint32_t i = 0; i < all.made; ++i) {
    if (slots_[i].state.load() == SlotState::kReady && !is_continued(slots_[i])) heap_insert(i);
  }
}

// ---- by name, and by the page before ----

uint32_t& HostIndex::name_bucket(const Name& name) const {
  return by_name_[NameHash()(name) & (buckets_ - 1)];
}

uint32_t& HostIndex::parent_bucket(const Name& name) const {
  return by_parent_[NameHash()(name) & (buckets_ - 1)];
}

// Counts it, too. Its parents stay in the heap, and it is not in there itself.
void HostIndex::link(uint32_t index) {
  Header& all = header();
  Slot& added = slots_[index];
  uint32_t& by_name = name_bucket(added.head.name);
  added.next_by_name = by_name;
  by_name = index;
  uint32_t& by_parent = parent_bucket(parent_of(added.head));
  added.next_by_parent = by_parent;
  by_parent = index;
  if (added.state.load() == SlotState::kReady) {
    ++all.records;
    if (is_counted(added.leased_until, steady_seconds())) lease_until(added, added.leased_until);
    return;
  }
  added.previous_writing = kNone;
  added.next_writing = all.writing;
  if (all.writing != kNone) slots_[all.writing].previous_writing = index;
  all.writing = index;
}

void HostIndex::unlink(uint32_t index) {
  const Slot& gone = slots_[index];
  uint32_t* at = &name_bucket(gone.head.name);
  while (*at != index) at = &slots_[*at].next_by_name;
  *at = gone.next_by_name;
  at = &parent_bucket(parent_of(gone.head));
  while (*at != index) at = &slots_[*at].next_by_parent;
  *at = gone.next_by_parent;
}

template <typename Visit>
void HostIndex::for_each_page(const Name& name, Visit visit) {
  for (uint32_t i = name_bucket(name); i != kNone; i = slots_[i].next_by_name) {
    if (slots_[i].head.name == name && slots_[i].head.kind == Kind::kPage) visit(i);
  }
}

bool HostIndex::is_continued(const Slot& page) const {
  if (page.head.kind != Kind::kPage) return false;
  for (uint32_t i = parent_bucket(page.head.name); i != kNone; i = slots_[i].next_by_parent) {
    if (parent_of(slots_[i].head) == page.head.name) return true;
  }
  return false;
}

std::vector<uint32_t> HostIndex::find(const Head& head) {
  std::vector<uint32_t> held;
  std::vector<Part> parts;
  for (uint32_t i = name_bucket(head.name); i != kNone; i = slots_[i].next_by_name) {
    const Slot& each = slots_[i];
    if (each.state.load() != SlotState::kReady || !is_same_record(each.head, head)) continue;
    held.push_back(i);
    parts.push_back(each.head.part);
  }
  std::vector<uint32_t> chosen;
  for (const size_t i : parts_that_cover(head.part, parts)) chosen.push_back(held[i]);
  return chosen;
}

void HostIndex::used(uint32_t index, bool is_hit, double seconds) {
  Slot& slot = slots_[index];
  if (is_hit) slot.hits = std::min(slot.hits + 1, kMaxHits);
  if (seconds > 0.0) slot.seconds = seconds;
  slot.last_use = ++header().uses;
  slot.priority = priority_of(slot);
  if (slot.heap_at != kNone) heap_move(slot.heap_at);
}

uint64_t HostIndex::leased_blocks(double now) const {
  uint64_t blocks = 0;
  for (const Header::Leases& each : header().leases) {
    if (static_cast<double>(each.second) > now) blocks += each.blocks;
  }
  return blocks;
}

void HostIndex::lease_until(Slot& slot, double until) {
  const uint64_t second = end_second(until);
  Header::Leases& leases = header().leases[second % Header::kLeaseSeconds];
  if (leases.second != second) leases = {.second = second, .blocks = 0};
  leases.blocks += slot.num_blocks;
  slot.leased_until = until;
}

// It is not counted any more.
void HostIndex::end_lease(const Slot& slot) {
  if (slot.leased_until == 0.0) return;
  const uint64_t second = end_second(slot.leased_until);
  Header::Leases& leases = header().leases[second % Header::kLeaseSeconds];
  if (leases.second == second) leases.blocks -= slot.num_blocks;
}

void HostIndex::lease(const std::vector<uint32_t>& slots, double seconds) {
  if (slots.empty()) return;
  const double now = steady_seconds();
  seconds = std::min(seconds, kMaxLeaseSeconds);
  uint64_t blocks = leased_blocks(now);
  std::vector<uint32_t> chain;  // all parts of the record, then of each that goes before
  Name name = slots_[slots.front()].head.name;
  Kind kind = slots_[slots.front()].head.kind;
  double long_enough = now + seconds;
  for (size_t before = chain.size();; before = chain.size()) {
    Name parent;
    for (uint32_t i = name_bucket(name); i != kNone; i = slots_[i].next_by_name) {
      const Slot& each = slots_[i];
      if (each.head.name != name || each.head.kind != kind) continue;
      if (each.state.load() != SlotState::kReady || each.leased_until >= long_enough) continue;
      if (!is_counted(each.leased_until, now)) blocks += each.num_blocks;
      chain.push_back(i);
      parent = parent_of(each.head);
    }
    if (chain.size() == before || blocks > num_blocks() / 2) break;
    if (chain.size() > header().made) return;  // it goes on from itself: somebody's invention
    name = parent;
    kind = Kind::kPage;
    long_enough = now + kNearlyAsLong * seconds;
  }
  if (blocks > num_blocks() / 2) return;
  for (const uint32_t each : chain) {
    end_lease(slots_[each]);
    lease_until(slots_[each], now + seconds);
  }
}

// All parts of a record go together.
bool HostIndex::is_leased(const Slot& slot, double now) const {
  for (uint32_t i = name_bucket(slot.head.name); i != kNone; i = slots_[i].next_by_name) {
    const Slot& each = slots_[i];
    if (each.leased_until > now && each.head.name == slot.head.name &&
        each.head.kind == slot.head.kind) {
      return true;
    }
  }
  return false;
}

// ---- the heap: what goes first is at its top ----

double HostIndex::priority_of(const Slot& slot) const {
  const double bytes = static_cast<double>(slot.num_blocks) * static_cast<double>(kBlockBytes);
  return header().clock + static_cast<double>(slot.hits) * slot.seconds / bytes;
}

bool HostIndex::is_before(uint32_t a, uint32_t b) const {
  const Slot &x = slots_[a], &y = slots_[b];
  return x.priority != y.priority ? x.priority < y.priority : x.last_use < y.last_use;
}

void HostIndex::heap_put(uint32_t at, uint32_t index) {
  heap_[at] = index;
  slots_[index].heap_at = at;
}

// What is at this place goes to where it belongs.
void HostIndex::heap_move(uint32_t at) {
  const uint32_t index = heap_[at], size = header().heap_size;
  while (at > 0 && is_before(index, heap_[(at - 1) / 2])) {
    heap_put(at, heap_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  for (uint64_t child = uint64_t{at} * 2 + 1; child < size; child = uint64_t{at} * 2 + 1) {
    if (child + 1 < size && is_before(heap_[child + 1], heap_[child])) ++child;
    if (!is_before(heap_[child], index)) break;
    heap_put(at, heap_[child]);
    at = static_cast<uint32_t>(child);
  }
  heap_put(at, index);
}

void HostIndex::heap_insert(uint32_t index) {
  if (slots_[index].heap_at != kNone) return;
  heap_put(header().heap_size++, index);
  heap_move(header().heap_size - 1);
}

void HostIndex::heap_remove(uint32_t index) {
  const uint32_t at = slots_[index].heap_at;
  if (at == kNone) return;
  slots_[index].heap_at = kNone;
  const uint32_t last = --header().heap_size;
  if (at == last) return;
  heap_put(at, heap_[last]);
  heap_move(at);
}

// ---- taking and freeing ----

HostIndex::Taken HostIndex::take(const Head& head, double seconds, const ProcessMark& writer) {
  uint32_t next = kNone;
  for (uint32_t i = name_bucket(head.name); i != kNone; i = next) {
    next = slots_[i].next_by_name;
    const Slot& each = slots_[i];
    if (each.head.name != head.name || each.head.kind != head.kind) continue;
    if (!is_same_record(each.head, head)) return {};  // another's tokens have the name
    if (each.state.load() != SlotState::kWriting || each.head.part != head.part) continue;
    if (!has_ended(each.writer)) return {.room = Room::kKnown};
    free(i);
  }
  if (const std::vector<uint32_t> held = find(head); !held.empty()) {
    for (const uint32_t each : held) used(each, false, seconds);
    return {.room = Room::kKnown};
  }
  const uint64_t blocks = blocks_of(head.part.bytes());
  if (blocks == 0 || blocks > num_blocks()) return {};
  Taken taken;
  if (!make_room(head, seconds, blocks, taken.evicted)) return taken;

  Header& all = header();
  const uint32_t index = all.free_slot;
  Slot& slot = slots_[index];
  all.free_slot = slot.next_by_name;
  slot.first_block = all.free_block;  // the first free ones are a chain already
  slot.num_blocks = static_cast<uint32_t>(blocks);
  slot.last_block = slot.first_block;
  for (uint64_t i = 1; i < blocks; ++i) slot.last_block = next_block_[slot.last_block];
  all.free_block = next_block_[slot.last_block];
  all.free_blocks -= blocks;
  slot.head = head;
  slot.writer = writer;
  slot.seconds = seconds;
  slot.hits = 1;
  slot.leased_until = 0.0;
  slot.heap_at = kNone;
  slot.last_use = ++all.uses;
  slot.priority = priority_of(slot);
  slot.state.store(SlotState::kWriting, std::memory_order_release);
  link(index);
  for_each_page(parent_of(head), [&](uint32_t parent) { heap_remove(parent); });
  taken.room = Room::kTaken;
  taken.slot = index;
  return taken;
}

void HostIndex::leave_writing(const Slot& slot) {
  uint32_t& from_before = slot.previous_writing == kNone
                              ? header().writing
                              : slots_[slot.previous_writing].next_writing;
  from_before = slot.next_writing;
  if (slot.next_writing != kNone)
    slots_[slot.next_writing].previous_writing = slot.previous_writing;
}

void HostIndex::make_ready(uint32_t index, uint64_t hash) {
  Header& all = header();
  Slot& slot = slots_[index];
  leave_writing(slot);
  slot.hash = hash;
  slot.state.store(SlotState::kReady, std::memory_order_release);
  add_news();
  ++all.records;
  if (!is_continued(slot)) heap_insert(index);
}

void HostIndex::free(uint32_t index) {
  Header& all = header();
  Slot& slot = slots_[index];
  const SlotState state = slot.state.load();
  WIDEEP_CHECK(state != SlotState::kFree);
  slot.generation.fetch_add(1);
  slot.state.store(SlotState::kFree, std::memory_order_release);
  if (state == SlotState::kWriting) {
    leave_writing(slot);
  } else {
    --all.records;
  }
  heap_remove(index);
  unlink(index);
  end_lease(slot);
  next_block_[slot.last_block] = all.free_block;
  all.free_block = slot.first_block;
  all.free_blocks += slot.num_blocks;
  slot.next_by_name = all.free_slot;
  all.free_slot = index;
  for_each_page(parent_of(slot.head), [&](uint32_t parent) {
    const Slot& page = slots_[parent];
    if (page.state.load() == SlotState::kReady && !is_continued(page)) heap_insert(parent);
  });
}

void HostIndex::forget(const Name& name, Kind kind) {
  uint32_t next = kNone;
  for (uint32_t i = name_bucket(name); i != kNone; i = next) {
    next = slots_[i].next_by_name;
    const Slot& each = slots_[i];
    if (each.state.load() == SlotState::kReady && each.head.name == name &&
        each.head.kind == kind) {
      free(i);
    }
  }
}

// All parts of the record: without one of them the others are of no use.
uint64_t HostIndex::evict(uint32_t index) {
  const Name name = slots_[index].head.name;
  const Kind kind = slots_[index].head.kind;
  Header& all = header();
  all.clock = std::max(all.clock, slots_[index].priority);
  const uint64_t before = all.records;
  forget(name, kind);
  return before - all.records;
}

// Free blocks for a record of this head. What is of less use gives way.
bool HostIndex::make_room(const Head& head, double seconds, uint64_t blocks, uint64_t& evicted) {
  Header& all = header();
  const Name& parent = parent_of(head);
  bool has_parent = false;
  for_each_page(parent, [&](uint32_t) { has_parent = true; });
  // Behind a gap it is of use only if another place has what lacks.
  const bool may_evict = has_parent || head.page == 0 || head.kind == Kind::kState;
  const double priority =
      all.clock + seconds / (static_cast<double>(blocks) * static_cast<double>(kBlockBytes));
  const bool takes_all = all.takes_all.load(std::memory_order_relaxed) != 0;
  const auto may_give_way = [&](const Slot& each) {
    return takes_all || each.priority <= priority;
  };
  std::vector<uint32_t> spared;  // what it goes on from, its other parts, and what is leased
  const double now = steady_seconds();
  const auto is_spared = [&](const Slot& each) {
    return each.head.name == head.name || each.head.name == parent || is_leased(each, now);
  };
  bool has_room = true;
  while (has_room && all.free_blocks < blocks) {
    if (grow() || free_dead_writers()) continue;
    while (may_evict && all.heap_size > 0 && spared.size() < kMaxSpared &&
           may_give_way(slots_[heap_[0]]) && is_spared(slots_[heap_[0]])) {
      spared.push_back(heap_[0]);
      heap_remove(heap_[0]);
    }
    if (!may_evict || all.heap_size == 0 || spared.size() == kMaxSpared) {
      has_room = false;
    } else if (const uint32_t first = heap_[0]; !may_give_way(slots_[first])) {
      // As if it had come and gone: else what was hot once would be worth more for ever.
      all.clock = std::max(all.clock, priority);
      has_room = false;
    } else {
      evicted += evict(first);
    }
  }
  for (const uint32_t each : spared) {
    if (slots_[each].state.load() == SlotState::kReady && !is_continued(slots_[each])) {
      heap_insert(each);
    }
  }
  return has_room;
}

// More of the memory that this tier may have.
bool HostIndex::grow() {
  Header& all = header();
  if (all.made == all.num_blocks || steady_seconds() < no_growth_until_) return false;
  const uint64_t step = std::min(kStepBlocks, all.num_blocks - all.made);
  const auto offset = [&](const void* at) {
    return static_cast<size_t>(static_cast<const std::byte*>(at) - memory_->data());
  };
  Status status = memory_->reserve(offset(slots_ + all.made), step * sizeof(Slot));
  if (status.ok()) {
    status = memory_->reserve(offset(block(static_cast<uint32_t>(all.made))), step * kBlockBytes);
  }
  if (!status.ok()) {
    if (!std::exchange(has_told_growth_, true)) {
      log::warn("{}: the cache keeps to {} of {} bytes for now", status.message(),
                all.made * kBlockBytes, all.num_blocks * kBlockBytes);
    }
    no_growth_until_ = steady_seconds() + kSecondsBetweenGrowth;
    return false;
  }
  const auto first = static_cast<uint32_t>(all.made);
  all.made += step;
  for (uint32_t i = first + static_cast<uint32_t>(step); i-- > first;) {
    next_block_[i] = all.free_block;
    all.free_block = i;
    ++all.free_blocks;
    slots_[i].next_by_name = all.free_slot;
    all.free_slot = i;
  }
  return true;
}

bool HostIndex::free_dead_writers() {
  if (header().writing == kNone || steady_seconds() < no_search_until_) return false;
  no_search_until_ = steady_seconds() + kSecondsBetweenSearches;
  bool has_freed = false;
  uint32_t next = kNone;
  for (uint32_t i = header().writing; i != kNone; i = next) {
    next = slots_[i].next_writing;
    if (!has_ended(slots_[i].writer)) continue;
    free(i);
    has_freed = true;
  }
  return has_freed;
}

HostIndex::Size HostIndex::size() const {
  const Header& all = header();
  return {.records = all.records, .used_blocks = all.made - all.free_blocks};
}

std::string HostIndex::disagreement() {
  const Header& all = header();
  std::vector<bool> is_claimed(all.made), is_free(all.made);
  uint64_t leased[Header::kLeaseSeconds] = {};
  uint64_t records = 0, in_heap = 0, free_slots = 0, free_blocks = 0, writing = 0;
  for (uint32_t i = 0; i < all.made; ++i) {
    Slot& each = slots_[i];
    if (each.state.load() == SlotState::kFree) continue;
    if (!is_claimable(each, is_claimed)) return fmt::format("slot {}: chain of blocks", i);
    uint32_t found = name_bucket(each.head.name);
    while (found != i && found != kNone) found = slots_[found].next_by_name;
    if (found != i) return fmt::format("slot {}: not found by its name", i);
    found = parent_bucket(parent_of(each.head));
    while (found != i && found != kNone) found = slots_[found].next_by_parent;
    if (found != i) return fmt::format("slot {}: not found by its parent", i);
    const bool is_ready = each.state.load() == SlotState::kReady;
    if (is_ready) ++records;
    const uint64_t second = end_second(each.leased_until);
    const uint64_t bucket = second % Header::kLeaseSeconds;
    if (second != 0 && all.leases[bucket].second == second) leased[bucket] += each.num_blocks;
    const bool may_go = is_ready && !is_continued(each);
    if (may_go != (each.heap_at != kNone)) return fmt::format("slot {}: in the heap or not", i);
    if (!may_go) continue;
    ++in_heap;
    if (each.heap_at >= all.heap_size || heap_[each.heap_at] != i) {
      return fmt::format("slot {}: place in the heap", i);
    }
    if (each.heap_at > 0 && is_before(i, heap_[(each.heap_at - 1) / 2])) {
      return fmt::format("slot {}: order of the heap", i);
    }
  }
  for (uint32_t i = all.free_block; i != kNone; i = next_block_[i]) {
    if (i >= all.made || is_claimed[i] || is_free[i]) return fmt::format("block {}: free twice", i);
    is_free[i] = true;
    ++free_blocks;
  }
  for (uint32_t i = 0; i < all.made; ++i) {
    if (!is_claimed[i] && !is_free[i]) return fmt::format("block {}: lost", i);
  }
  std::vector<bool> is_listed(all.made);
  for (uint32_t i = all.free_slot; i != kNone; i = slots_[i].next_by_name) {
    if (i >= all.made || slots_[i].state.load() != SlotState::kFree || is_listed[i]) {
      return fmt::format("slot {}: free or not", i);
    }
    is_listed[i] = true;
    ++free_slots;
  }
  for (uint32_t i = all.writing; i != kNone; i = slots_[i].next_writing) {
    if (slots_[i].state.load() != SlotState::kWriting || ++writing > all.made) {
      return fmt::format("slot {}: in the list of those that are written", i);
    }
  }
  for (uint64_t i = 0; i < Header::kLeaseSeconds; ++i) {
    if (leased[i] != all.leases[i].blocks) return fmt::format("leases {}: blocks", i);
  }
  if (records != all.records || in_heap != all.heap_size || free_blocks != all.free_blocks ||
      free_slots + records + writing != all.made) {
    return fmt::format("counts: {} records of {}, {} of {} in the heap, {} of {} blocks free",
                       records, all.records, in_heap, all.heap_size, free_blocks, all.free_blocks);
  }
  return {};
}

}  // namespace wideep::store
