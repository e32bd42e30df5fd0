// SPDX-License-Identifier: Apache-2.0
//
// What a process has known of a directory may have changed since: each record is read with the block
// in front of it, and what it should be is compared with what is there.
#include "store/record_reader.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/content_hash.h"
#include "base/try.h"
#include "store/coverage.h"

namespace wideep::store {
namespace {

DirectoryIndex::Key key_of(const Head& head) { return {.name = head.name, .kind = head.kind}; }

uint64_t whole_blocks(uint64_t bytes) { return bytes / kBlockBytes * kBlockBytes; }

}  // namespace

std::vector<DirectoryIndex::Record> RecordReader::records_for(const Head& head) const {
  const DirectoryIndex::Entry* entry = segments_.index().find(key_of(head));
  if (entry == nullptr || entry->record_class != record_class_) return {};
  for (const Record& record : entry->records) {
    if (record.part == head.part && record.canonical_bytes == head.canonical_bytes) return {record};
  }
  Coverage coverage(head.part);
  std::vector<Record> chosen;
  for (const Record& record : entry->records) {
    if (record.canonical_bytes != head.canonical_bytes) continue;
    if (coverage.add(record.part) > 0) chosen.push_back(record);
    if (coverage.is_whole()) return chosen;
  }
  return {};
}

Status RecordReader::fetch(std::span<const FetchOrder> orders,
                           const std::function<bool(size_t index, FetchResult result)>& done) {
  size_t next = 0;
  while (next < orders.size()) {
    const std::vector<Record> run = run_from(orders.subspan(next));
    const std::span<const FetchOrder> part = orders.subspan(next, std::max<size_t>(run.size(), 1));
    const std::vector<Check> checks =
        run.empty() ? std::vector<Check>{Check::kGone} : read_run(part, run);
    for (size_t i = 0; i < part.size(); ++i) {
      FetchResult result = FetchResult::kWhole;
      if (checks[i] != Check::kWhole) {
        if (!run.empty()) settle(part[i], run[i], checks[i]);
        WIDEEP_TRY_ASSIGN(result, try_again(part[i], checks[i]));
      }
      if (result == FetchResult::kWhole) segments_.index().use(key_of(part[i].head));
      if (!done(next + i, result)) return {};
    }
    next += part.size();
  }
  return {};
}

// Of the first orders: records that have just the parts that are wanted, and lie one behind the
// other. None: the first order has to be put together, or is not there.
std::vector<DirectoryIndex::Record> RecordReader::run_from(
    std::span<const FetchOrder> orders) const {
  std::vector<Record> run;
  uint64_t bytes = 0;
  for (const FetchOrder& order : orders) {
    const std::vector<Record> records = records_for(order.head);
    if (records.size() != 1 || records[0].part != order.head.part) break;
    const Record& record = records[0];
    if (!run.empty() &&
        (record.segment != run.back().segment || record.offset != run.back().end() ||
         bytes + record.bytes() > kMaxReadBytes)) {
      break;
    }
    run.push_back(record);
    bytes += record.bytes();
  }
  return run;
}

RecordReader::Check RecordReader::read_error(int error) {
  if (error == ENODATA || error == ENOENT) return Check::kGone;
  if (error == EIO) {
    why_ = std::strerror(error);
    return Check::kDamaged;
  }
  error_ = error;
  return Check::kFailed;
}

std::vector<RecordReader::Check> RecordReader::read_run(std::span<const FetchOrder> orders,
                                                        std::span<const Record> run) {
  int error = 0;
  Segment* segment = segments_.opened(run[0].segment, error);
  if (segment == nullptr) return std::vector(run.size(), read_error(error));
  std::vector<Check> checks(run.size(), Check::kGone);
  if (read_straight(*segment, orders, run, checks)) return checks;

  const uint64_t begin = run.front().offset, bytes = run.back().end() - begin;
  const std::byte* memory = memory_.at_least(bytes);
  error = segment->file().read(begin, std::span(memory_.at_least(bytes), bytes));
  if (error != 0) {
    if (run.size() == 1) return {read_error(error)};
    // One of them cannot be read: which?
    for (size_t i = 0; i < run.size(); ++i) {
      checks[i] = read_run(orders.subspan(i, 1), run.subspan(i, 1))[0];
    }
    return checks;
  }
  for (size_t i = 0; i < run.size(); ++i) {
    const std::byte* block = memory + (run[i].offset - begin);
    uint64_t hash = 0;
    checks[i] = check_block(orders[i].head, run[i], ConstBlockBytes(block, kBlockBytes), hash);
    if (checks[i] != Check::kWhole) continue;
    const std::span<std::byte> into = orders[i].into;
    const uint64_t found =
        base::copy_and_hash(block + kBlockBytes, into.data(), into.size(), [] { return true; });
    if (found != hash) checks[i] = without_hash(*segment, orders[i].head, run[i]);
  }
  return checks;
}

// Without a copy. The last bytes of a payload, less than a block, go by way of memory_. false: some
// of the memory is not aligned, or the read failed.
bool RecordReader::read_straight(Segment& segment, std::span<const FetchOrder> orders,
                                 std::span<const Record> run, std::vector<Check>& checks) {
  const uint64_t alignment = segment.file().memory_alignment();
  std::vector<iovec> pieces;
  std::byte* blocks = memory_.at_least(2 * kBlockBytes * run.size());
  for (size_t i = 0; i < run.size(); ++i) {
    const std::span<std::byte> into = orders[i].into;
    if (reinterpret_cast<uintptr_t>(into.data()) % alignment != 0) return false;
    std::byte* block = blocks + 2 * kBlockBytes * i;
    const uint64_t body = whole_blocks(into.size());
    pieces.push_back({block, kBlockBytes});
    if (body > 0) pieces.push_back({into.data(), body});
    if (body < into.size()) pieces.push_back({block + kBlockBytes, kBlockBytes});
  }
  constexpr size_t kMaxPieces = 1024;  // IOV_MAX
  if (pieces.size() > kMaxPieces || segment.file().read(run[0].offset, pieces) != 0) return false;
  for (size_t i = 0; i < run.size(); ++i) {
    const std::byte* block = blocks + 2 * kBlockBytes * i;
    const std::span<std::byte> into = orders[i].into;
    const uint64_t body = whole_blocks(into.size());
    uint64_t hash = 0;
    checks[i] = check_block(orders[i].head, run[i], ConstBlockBytes(block, kBlockBytes), hash);
    if (checks[i] != Check::kWhole) continue;
    std::memcpy(into.data() + body, block + kBlockBytes, into.size() - body);
    if (base::content_hash(into.data(), into.size()) != hash) {
      checks[i] = without_hash(segment, orders[i].head, run[i]);
    }
  }
  return true;
}

RecordReader::Check RecordReader::check_block(const Head& wanted, const Record& record,
                                              ConstBlockBytes block, uint64_t& payload_hash) {
  RecordHead found;
  switch (read_block(block, record.segment, record.offset, found)) {
    case BlockKind::kWhole:
      break;
    case BlockKind::kEmpty:
      return Check::kGone;
    case BlockKind::kOtherVersion:
    case BlockKind::kUnreadable:
      why_ = "its block is not what was written";
      return Check::kDamaged;
  }
  payload_hash = found.payload_hash;
  const Head& head = found.head;
  if (head.name != wanted.name || head.kind != wanted.kind || head.part != record.part) {
    why_ = "it is another record";
    return Check::kDamaged;
  }
  return head.tokens == wanted.tokens && head.before == wanted.before && head.page == wanted.page &&
                 head.canonical_bytes == wanted.canonical_bytes
             ? Check::kWhole
             : Check::kOther;
}

// The hash is another: the bytes have changed, or they were taken out while they were read.
RecordReader::Check RecordReader::without_hash(Segment& segment, const Head& wanted,
                                               const Record& record) {
  const RecordHead head = {.head = {.name = wanted.name, .kind = wanted.kind, .part = record.part},
                           .offset = record.offset};
  if (!segment.has_for_sure(head)) return Check::kGone;
  why_ = "its bytes do not have the checksum that was written with them";
  return Check::kDamaged;
}

RecordReader::Check RecordReader::read_part(const FetchOrder& order, const Record& record) {
  int error = 0;
  Segment* segment = segments_.opened(record.segment, error);
  if (segment == nullptr) return read_error(error);
  const std::span memory(memory_.at_least(record.bytes()), record.bytes());
  error = segment->file().read(record.offset, memory);
  if (error != 0) return read_error(error);
  uint64_t hash = 0;
  const Check check =
      check_block(order.head, record, ConstBlockBytes(memory.data(), kBlockBytes), hash);
  if (check != Check::kWhole) return check;
  const auto payload = memory.subspan(kBlockBytes, record.part.bytes());
  if (base::content_hash(payload.data(), payload.size()) != hash) {
    return without_hash(*segment, order.head, record);
  }
  copy_overlap(record.part, payload, order.head.part, order.into);
  return Check::kWhole;
}

RecordReader::Check RecordReader::read_parts(const FetchOrder& order,
                                             std::span<const Record> records) {
  for (const Record& record : records) {
    const Check check = read_part(order, record);
    if (check == Check::kWhole) continue;
    settle(order, record, check);
    return check;
  }
  return Check::kWhole;
}

void RecordReader::settle(const FetchOrder& order, const Record& record, Check check) {
  if (check == Check::kGone) {
    segments_.index().remove(key_of(order.head), record.segment, record.offset);
  } else if (check == Check::kDamaged) {
    segments_.lose(key_of(order.head), record, why_);
  }
}

// With other records that have the bytes, too. Each turn that fails has taken one out of the index.
Result<FetchResult> RecordReader::try_again(const FetchOrder& order, Check check) {
  bool is_damaged = check == Check::kDamaged;
  while (check == Check::kGone || check == Check::kDamaged) {
    const std::vector<Record> records = records_for(order.head);
    if (records.empty()) break;
    check = read_parts(order, records);
    is_damaged = is_damaged || check == Check::kDamaged;
    if (check == Check::kWhole) return FetchResult::kWhole;
  }
  if (check == Check::kFailed) {
    return failed(fmt::format("prompt cache {}: cannot be read: {}", segments_.path(),
                              std::strerror(error_)));
  }
  return is_damaged ? FetchResult::kDamaged : FetchResult::kMissing;
}

}  // namespace wideep::store
