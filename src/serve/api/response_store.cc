// SPDX-License-Identifier: Apache-2.0
//
// Entries are one limit, memory the other: an answer that goes on from a response holds it even
// when its entry is gone. So each response counts until its last holder lets go of it, by its
// deleter. Beyond twice the limit only entries go that nobody else holds; to drop the others would
// free nothing. What another process has lent is found by previous() alone: no client can read or
// erase it.
#include "api/response_store.h"

#include <fmt/format.h>
#include <algorithm>

#include <utility>

#include "schedule/wire.h"

namespace wideep::server {

void ResponseStore::add(const std::string& id, StoredResponse response) {
  const std::lock_guard lock(mutex_);
  if (const auto before = entries_.find(id); before != entries_.end()) drop(before);
  if (!may_keep(response.bytes())) {
    ++evicted_;
    return;
  }
  bytes_ += response.bytes();
  entries_[id] = {counted(std::move(response)), num_added_};
  ids_[num_added_++] = id;
  make_room();
}

// Counts for as long as anybody holds it.
std::shared_ptr<const StoredResponse> ResponseStore::counted(StoredResponse response) const {
  const size_t bytes = response.bytes();
  *held_bytes_ += bytes;
  return {new StoredResponse(std::move(response)),
          [bytes, held = held_bytes_](const StoredResponse* each) {
            delete each;
            *held -= bytes;
          }};
}

// The oldest go. What running answers hold stays in memory though its entry goes: for their sake at
// most as much again is kept, and then only entries go that free something.
void ResponseStore::make_room() {
  const auto evict = [&](const std::string& id) {
    drop(entries_.find(id));
    ++evicted_;
  };
  while (entries_.size() > limits_.count || bytes_ > limits_.bytes) evict(ids_.begin()->second);
  while (*held_bytes_ > 2 * limits_.bytes) {
    const auto free = std::ranges::find_if(ids_, [&](const auto& each) {
      return entries_.find(each.second)->second.response.use_count() == 1;
    });
    if (free == ids_.end()) return;
    evict(std::string(free->second));
  }
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.response;
}

std::shared_ptr<const StoredResponse> ResponseStore::previous(const std::string& id) const {
  if (auto stored = find(id)) return stored;
  const std::lock_guard lock(mutex_);
  const auto found = lent_.find(id);
  return found == lent_.end() ? nullptr : found->second;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  drop(found);
  return true;
}

std::string ResponseStore::record_of(const std::string& id, const StoredResponse* response) {
  if (response == nullptr) return "";
  engine::WireWriter writer;
  writer.put_text(id);
  writer.put_text(response->response);
  writer.put_text(response->conversation);
  return writer.take();
}

std::shared_ptr<const ResponseStore::Loan> ResponseStore::lend(std::string_view record) {
  if (record.empty()) return nullptr;
  engine::WireReader reader(record);
  const std::string id(reader.get_text());
  StoredResponse response;
  response.response = reader.get_text();
  response.conversation = reader.get_text();
  return std::make_shared<const Loan>(*this, id, std::move(response));
}

ResponseStore::Loan::Loan(ResponseStore& store, const std::string& id, StoredResponse response)
    : store_(store) {
  const std::lock_guard lock(store_.mutex_);
  entry_ = store_.lent_.emplace(id, std::make_shared<const StoredResponse>(std::move(response)));
}

ResponseStore::Loan::~Loan() {
  const std::lock_guard lock(store_.mutex_);
  store_.lent_.erase(entry_);
}

void ResponseStore::drop(Entries::iterator entry) {
  bytes_ -= entry->second.response->bytes();
  ids_.erase(entry->second.number);
  entries_.erase(entry);
}

size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::string ResponseStore::metrics() const {
  const std::lock_guard lock(mutex_);
  const auto metric = [](const char* name, const char* kind, const char* help, uint64_t value) {
    return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, kind, value);
  };
  return metric("wideep_stored_responses", "gauge", "Responses that clients have stored.",
                entries_.size()) +
         metric("wideep_stored_response_bytes", "gauge", "Bytes of these, as JSON.", bytes_) +
         metric("wideep_stored_responses_evicted_total", "counter",
                "Stored responses that have made room for newer ones.", evicted_);
}

}  // namespace wideep::server
