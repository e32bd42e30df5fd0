// SPDX-License-Identifier: Apache-2.0
//
// A place puts a whole record together of the parts that it has, so a whole one is asked for. The
// archive grows under another name, and gets its own when it is complete: a process that dies
// leaves no half of one that somebody could import.
#include "run/prompt_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "base/try.h"
#include "store/archive_reader.h"
#include "store/directory.h"
#include "store/redis_record.h"
#include "store/segment_format.h"
#include "store/use_counts.h"

namespace wideep::run {
namespace {

using store::Head;
using store::Places;

// Fetched at once, or one record if that has more.
constexpr uint64_t kMaxBatchBytes = uint64_t{32} << 20;
constexpr std::chrono::milliseconds kLookAgain{50};
// What an archive may claim that a record saves: a larger number would keep it for ever.
constexpr double kMaxSeconds = 600.0;
// More parts of a page and its state than a place should have to put together.
constexpr size_t kMaxRecordsOfName = 2 * store::kMaxRedisParts;

uint64_t canonical_bytes(const RecordForm& form, store::Kind kind) {
  return kind == store::Kind::kPage ? form.page_bytes : form.state_bytes;
}

Status ended_early() { return failed("it was ended before all records were copied"); }

uint64_t record_bytes(const Head& head) {
  return store::kBlockBytes + store::round_up_to_block(head.part.bytes());
}

// A record of the state after each page.
std::vector<Head> states_of(const RecordForm& form, std::vector<Head> pages) {
  if (form.state_bytes == 0) return {};
  for (Head& head : pages) {
    head.kind = store::Kind::kState;
    head.canonical_bytes = form.state_bytes;
    head.part = store::Part::whole(form.state_bytes);
  }
  return pages;
}

// ---- export ----

struct Found {
  std::vector<Head> heads;
  std::vector<int> where;  // [heads] of Places::find()

  int64_t missing() const { return std::ranges::count(where, Places::kNowhere); }
  // Those that are somewhere; the others go.
  void keep_found() {
    size_t kept = 0;
    for (size_t i = 0; i < heads.size(); ++i) {
      if (where[i] == Places::kNowhere) continue;
      heads[kept] = heads[i];
      where[kept++] = where[i];
    }
    heads.resize(kept);
    where.resize(kept);
  }
};

Found find_pages(std::vector<Head> heads, std::chrono::milliseconds patience, Places& places) {
  const auto until = std::chrono::steady_clock::now() + patience;
  Found found{.heads = std::move(heads), .where = {}};
  found.where = places.find(found.heads);
  while (found.missing() > 0 && std::chrono::steady_clock::now() + kLookAgain < until) {
    std::this_thread::sleep_for(kLookAgain);
    found.where = places.find(found.heads);
  }
  return found;
}

// A directory that gets its name when it is complete.
class NewArchive {
 public:
  static Result<std::unique_ptr<NewArchive>> create(const RecordForm& form, const std::string& path,
                                                    uint64_t record_bytes) {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
      return invalid_input(fmt::format("{}: is there already; choose another name", path));
    }
    std::unique_ptr<NewArchive> archive(new NewArchive(path));
    std::filesystem::remove_all(archive->unfinished_, error);  // what a dead process has left
    // With the segment's first block, and one that stays free.
    const uint64_t segment_bytes =
        std::min(record_bytes, kMaxSegmentBytes) + 2 * store::kBlockBytes;
    const uint64_t max_bytes = 2 * record_bytes + 4 * segment_bytes + store::Directory::kMinBytes;
    auto directory = store::Directory::open({.path = archive->unfinished_,
                                             .max_bytes = max_bytes,
                                             .record_class = form.record_class,
                                             .segment_bytes = segment_bytes});
    if (!directory.ok()) return failed(directory.status().message());
    archive->directory_ = std::move(*directory);
    return archive;
  }
  ~NewArchive() {
    std::error_code error;
    directory_.reset();
    if (!is_finished_) std::filesystem::remove_all(unfinished_, error);
  }
  NewArchive(const NewArchive&) = delete;
  NewArchive& operator=(const NewArchive&) = delete;

  bool add(const Head& head, std::span<const std::byte> payload, double seconds) {
    const auto result = directory_->offer(head, payload, seconds, nullptr);
    return result == store::OfferResult::kTaken || result == store::OfferResult::kKnown;
  }

  Status finish() {
    WIDEEP_TRY(directory_->complete());
    directory_.reset();
    std::error_code error;
    // It says who has used what, of which an archive has nothing.
    std::filesystem::remove(unfinished_ + "/" + store::UseCounts::kFileName, error);
    // Over nothing but an empty directory.
    if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
      return failed(fmt::format("{}: cannot get its name: {}", path_, std::strerror(errno)));
    }
    is_finished_ = true;
    return {};
  }

 private:
  static constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 30;

  explicit NewArchive(const std::string& path) : path_(path) {
    const std::filesystem::path whole(path);
    unfinished_ =
        (whole.parent_path() / ("." + whole.filename().string() + ".unfinished")).string();
  }

  std::string path_, unfinished_;
  std::unique_ptr<store::Directory> directory_;
  bool is_finished_ = false;
};

// Returns [heads] whether the record has been copied. Errors: the archive; the order is ended.
Result<std::vector<bool>> copy_records(const Found& found, const ExportOrder& order, Places& places,
                                       NewArchive& archive) {
  std::vector<bool> copied(found.heads.size());
  std::vector<std::byte> memory;
  for (size_t first = 0; first < found.heads.size();) {
    const uint64_t each = found.heads[first].part.bytes();
    const size_t count =
        std::min<size_t>(std::max<uint64_t>(kMaxBatchBytes / each, 1), found.heads.size() - first);
    memory.resize(count * each);
    std::vector<store::Wanted> wanted(count);
    for (size_t i = 0; i < count; ++i) {
      wanted[i] = {.order = {.head = found.heads[first + i],
                             .into = std::span(memory).subspan(i * each, each)},
                   .place = found.where[first + i]};
    }
    bool is_written = true, has_ended = false;
    const auto done = [&](size_t index, store::FetchResult result, int) {
      has_ended = order.goes_on != nullptr && !order.goes_on();
      if (has_ended || result != store::FetchResult::kWhole) return !has_ended;
      const store::FetchOrder& each_order = wanted[index].order;
      is_written = archive.add(each_order.head, each_order.into, order.page_seconds);
      copied[first + index] = is_written;
      return is_written;
    };
    places.fetch(wanted, done);
    if (has_ended) return ended_early();
    if (!is_written) return failed("the archive cannot be written; see the line before");
    first += count;
  }
  return copied;
}

// ---- import ----

class Importer {
 public:
  Importer(const RecordForm& form, Places& places, const std::function<bool()>& goes_on)
      : form_(form),
        places_(places),
        goes_on_(goes_on),
        class_(store::root_name(form.record_class, "")) {
    seen_[class_].page = UINT32_MAX;  // page 0 comes next
  }

  Result<ImportedArchive> import(const std::string& path) {
    const store::RecordVisitor visitor = {
        .wants = [this](const auto& record) { return wants(record); },
        .take =
            [this](const auto& record, auto payload) {
              offer(record, payload);
              return true;
            }};
    WIDEEP_TRY_ASSIGN(const store::UnreadCounts unread, store::read_archive(path, visitor));
    if (has_ended_) return ended_early();
    result_.skipped.damaged = unread.damaged;
    result_.skipped.foreign = unread.foreign;
    result_.pages = static_cast<int64_t>(pages_.size());
    result_.states = static_cast<int64_t>(states_.size());
    return result_;
  }

 private:
  bool wants(const store::RecordHead& record) {
    has_ended_ = has_ended_ || (goes_on_ != nullptr && !goes_on_());
    if (has_ended_) return false;
    if (record.record_class != class_) {
      ++result_.skipped.other_class;
      return false;
    }
    const bool is_right = is_ours(record.head);
    if (!is_right) ++result_.skipped.wrong;
    return is_right;
  }

  // The part lies within the canonical form: read_block() has seen that.
  bool is_ours(const Head& head) {
    const uint64_t bytes = canonical_bytes(form_, head.kind);
    if (bytes == 0 || head.canonical_bytes != bytes) return false;
    if (head.part.count > store::kMaxRedisPieces) return false;
    if (store::page_name(head.before, /*form=*/0, head.tokens) != head.name) return false;
    // A wrong number would keep the right page from being stored under this name.
    const auto before = seen_.find(head.before);
    if (before != seen_.end() && head.page != before->second.page + 1) return false;
    const auto [known, is_new] = seen_.try_emplace(head.name, Seen{.page = head.page});
    return known->second.page == head.page && ++known->second.records <= kMaxRecordsOfName;
  }

  void offer(const store::RecordHead& record, std::span<const std::byte> payload) {
    const auto results = places_.offer_to_all(
        record.head, payload, std::min(record.seconds, kMaxSeconds), [] { return true; });
    const bool is_kept = std::ranges::any_of(results, [](store::OfferResult each) {
      return each == store::OfferResult::kTaken || each == store::OfferResult::kKnown;
    });
    if (!is_kept) {
      ++result_.skipped.refused;
      return;
    }
    result_.bytes += payload.size();
    (record.head.kind == store::Kind::kPage ? pages_ : states_).insert(record.head.name);
  }

  const RecordForm& form_;
  Places& places_;
  const std::function<bool()>& goes_on_;
  store::Name class_;
  bool has_ended_ = false;  // goes_on_ has said so
  ImportedArchive result_;
  // Of pages and their states.
  struct Seen {
    uint32_t page = 0;  // the page's number in its sequence
    size_t records = 0;
  };
  std::unordered_map<store::Name, Seen, store::NameHash> seen_;
  std::unordered_set<store::Name, store::NameHash> pages_, states_;  // kept; a record may be a part
};

void tell_skipped(const std::string& path, const SkippedRecords& skipped) {
  if (skipped.all() == 0) return;
  log::warn(
      "prompt cache: {}: {} records are skipped: {} of another model or class, {} whose sizes or "
      "names are wrong, {} damaged, {} of another version or no records, {} that no place keeps",
      base::printable(path), skipped.all(), skipped.other_class, skipped.wrong, skipped.damaged,
      skipped.foreign, skipped.refused);
}

}  // namespace

std::vector<Head> pages_of(const RecordForm& form, std::span<const int32_t> tokens,
                           std::string_view salt) {
  std::vector<Head> heads;
  store::PageWalk walk(form.record_class, salt, tokens);
  while (auto head = walk.next()) {
    head->canonical_bytes = form.page_bytes;
    head->part = store::Part::whole(form.page_bytes);
    heads.push_back(*head);
  }
  return heads;
}

Result<ExportedPrompt> export_prompt(const RecordForm& form, const ExportOrder& order,
                                     Places& places) {
  const std::vector<Head> heads = pages_of(form, order.tokens, order.salt);
  Found pages = find_pages(heads, order.patience, places);
  Found states{.heads = states_of(form, heads), .where = {}};
  states.where = places.find(states.heads);
  pages.keep_found();
  states.keep_found();
  ExportedPrompt result{.missing = static_cast<int64_t>(heads.size())};
  if (pages.heads.empty()) return result;
  uint64_t bytes = 0;
  for (const Found* each : {&pages, &states}) {
    for (const Head& head : each->heads) bytes += record_bytes(head);
  }
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<NewArchive> archive,
                    NewArchive::create(form, order.path, bytes));
  WIDEEP_TRY_ASSIGN(const auto copied_pages, copy_records(pages, order, places, *archive));
  WIDEEP_TRY_ASSIGN(const auto copied_states, copy_records(states, order, places, *archive));
  result.pages = std::ranges::count(copied_pages, true);
  result.states = std::ranges::count(copied_states, true);
  result.missing -= result.pages;
  result.bytes = static_cast<uint64_t>(result.pages) * form.page_bytes +
                 static_cast<uint64_t>(result.states) * form.state_bytes;
  WIDEEP_TRY(archive->finish());
  return result;
}

Result<ImportedArchive> import_archive(const RecordForm& form, const std::string& path,
                                       Places& places, const std::function<bool()>& goes_on) {
  auto result = Importer(form, places, goes_on).import(path);
  if (result.ok()) tell_skipped(path, result->skipped);
  return result;
}

}  // namespace wideep::run
