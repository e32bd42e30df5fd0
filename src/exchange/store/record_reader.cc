// SPDX-License-Identifier: Apache-2.0
//
// What a process has known of a directory may have changed since: each record is read with the block
// in front of it, and what it should be is compared with what is there.
#include "store/record_reader.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "base/content_hash.h"
#include "base/try.h"
#include "store/part_cover.h"

namespace wideep::store {
namespace {

DirectoryIndex::Key key_of(const Head& head) { return {.name = head.name, .kind = head.kind}; }

}  // namespace

std::vector<DirectoryIndex::Record> RecordReader::records_for(const Head& head) const {
  const DirectoryIndex::Entry* entry = segments_.index().find(key_of(head));
  if (entry == nullptr || entry->record_class != record_class_) return {};
  for (const Record& record : entry->records) {
    if (record.part == head.part && record.canonical_bytes == head.canonical_bytes) return {record};
  }
  std::vector<Record> alike, chosen;
  std::vector<Part> parts;
  for (const Record& record : entry->records) {
    if (record.canonical_bytes != head.canonical_bytes) continue;
    alike.push_back(record);
    parts.push_back(record.part);
  }
  for (const size_t i : parts_that_cover(head.part, parts)) chosen.push_back(alike[i]);
  return chosen;
}

Status RecordReader::fetch(std::span<const FetchOrder> orders,
                           const std::function<bool(size_t index, FetchResult result)>& done) {
  if (orders.empty()) return {};
  const Status status = fetch_in_batches(orders, done);
  // A model's states may be larger by far than all else, and are the last of a fetch.
  for (Batch& batch : batches_) batch.memory.keep_at_most(kMaxReadBytes);
  return status;
}

Status RecordReader::fetch_in_batches(
    std::span<const FetchOrder> orders,
    const std::function<bool(size_t index, FetchResult result)>& done) {
  begin(orders, 0, batches_[0]);
  read(batches_[0]);
  for (size_t turn = 0;; ++turn) {
    Batch& now = batches_[turn % 2];
    Batch& next = batches_[(turn + 1) % 2];
    const size_t behind = now.first + now.orders.size();
    std::future<void> reading;
    if (behind < orders.size()) {
      begin(orders, behind, next);
      reading = std::async(std::launch::async, [&next] { read(next); });
    }
    check(now);
    // First: settling may close files, and remove them.
    if (reading.valid()) reading.get();
    WIDEEP_TRY_ASSIGN(const bool goes_on, settle(now, done));
    if (!goes_on || behind == orders.size()) return {};
  }
}

void RecordReader::begin(std::span<const FetchOrder> orders, size_t first, Batch& batch) {
  batch.first = first;
  batch.records.clear();
  batch.file = nullptr;
  batch.error = 0;
  uint64_t bytes = 0;
  for (const FetchOrder& order : orders.subspan(first)) {
    const std::vector<Record> found = records_for(order.head);
    if (found.size() != 1 || found[0].part != order.head.part) break;
    const Record& record = found[0];
    if (!batch.records.empty() &&
        (record.segment != batch.records.back().segment ||
         record.offset != batch.records.back().end() || bytes + record.bytes() > kMaxReadBytes)) {
      break;
    }
    batch.records.push_back(record);
    bytes += record.bytes();
  }
  batch.orders = orders.subspan(first, std::max<size_t>(batch.records.size(), 1));
  batch.checks.assign(batch.orders.size(), Check::kGone);
  if (batch.records.empty()) return;
  Segment* segment = segments_.opened(batch.records[0].segment, batch.error);
  if (segment != nullptr) batch.file = &segment->file();
}

void RecordReader::read(Batch& batch) {
  if (batch.file == nullptr) return;
  const uint64_t begin = batch.records.front().offset, bytes = batch.records.back().end() - begin;
  batch.error = batch.file->read(begin, std::span(batch.memory.at_least(bytes), bytes));
}

// Nothing but memory: the next batch is being read.
void RecordReader::check(Batch& batch) {
  if (batch.error != 0) return;
  const std::byte* memory = batch.memory.at_least(0);
  for (size_t i = 0; i < batch.records.size(); ++i) {
    const Record& record = batch.records[i];
    const std::byte* block = memory + (record.offset - batch.records[0].offset);
    const std::span<std::byte> into = batch.orders[i].into;
    uint64_t wanted = 0;
    batch.checks[i] =
        check_block(batch.orders[i].head, record, ConstBlockBytes(block, kBlockBytes), wanted);
    if (batch.checks[i] != Check::kWhole) continue;
    const uint64_t hash =
        base::copy_and_hash(block + kBlockBytes, into.data(), into.size(), [] { return true; });
    if (hash != wanted) batch.checks[i] = Check::kOtherHash;
  }
}

// false: no more is wanted.
Result<bool> RecordReader::settle(
    Batch& batch, const std::function<bool(size_t index, FetchResult result)>& done) {
  for (size_t i = 0; i < batch.orders.size(); ++i) {
    const FetchOrder& order = batch.orders[i];
    Check check = batch.checks[i];
    if (batch.error != 0) {
      // One of them could not be read: which? Each for itself.
      check = read_part(order, batch.records[i]);
    }
    if (!batch.records.empty()) check = settled(order, batch.records[i], check);
    FetchResult result = FetchResult::kWhole;
    if (check != Check::kWhole) {
      WIDEEP_TRY_ASSIGN(result, try_again(order, check));
    }
    if (result == FetchResult::kWhole) segments_.use(key_of(order.head));
    if (!done(batch.first + i, result)) return false;
  }
  return true;
}

RecordReader::Check RecordReader::read_error(int error) {
  if (error == ENODATA || error == ENOENT) return Check::kGone;
  if (error == EIO) return Check::kDamaged;
  error_ = error;
  return Check::kFailed;
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
      return Check::kDamaged;
  }
  payload_hash = found.payload_hash;
  const Head& head = found.head;
  if (head.name != wanted.name || head.kind != wanted.kind || head.part != record.part) {
    return Check::kDamaged;
  }
  return head.tokens == wanted.tokens && head.before == wanted.before && head.page == wanted.page &&
                 head.canonical_bytes == wanted.canonical_bytes
             ? Check::kWhole
             : Check::kOther;
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
  if (base::content_hash(payload.data(), payload.size()) != hash) return Check::kOtherHash;
  copy_overlap(record.part, payload, order.head.part, order.into);
  return Check::kWhole;
}

RecordReader::Check RecordReader::read_parts(const FetchOrder& order,
                                             std::span<const Record> records) {
  for (const Record& record : records) {
    const Check check = settled(order, record, read_part(order, record));
    if (check != Check::kWhole) return check;
  }
  return Check::kWhole;
}

// What is gone or damaged leaves the index. Another hash: the bytes have changed, or they were
// taken out while they were read.
RecordReader::Check RecordReader::settled(const FetchOrder& order, const Record& record,
                                          Check check) {
  const DirectoryIndex::Key key = key_of(order.head);
  std::string why = "it cannot be read, or its block is not what was written";
  if (check == Check::kOtherHash) {
    int error = 0;
    Segment* segment = segments_.opened(record.segment, error);
    const RecordHead head = {.head = {.name = key.name, .kind = key.kind, .part = record.part},
                             .offset = record.offset};
    const bool is_there = segment != nullptr && segment->has_for_sure(head);
    why = "its bytes do not have the checksum that was written with them";
    check = is_there ? Check::kDamaged : Check::kGone;
  }
  if (check == Check::kGone) segments_.index().remove(key, record.segment, record.offset);
  if (check == Check::kDamaged) segments_.lose(key, record, why);
  return check;
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
