// SPDX-License-Identifier: Apache-2.0
//
// Responses that clients have asked to store (store: true), for GET /v1/responses/{id} and for
// previous_response_id. They are in the memory of the serving process, as JSON text, and bounded:
// the oldest ones make room for new ones. Those that answers still go on from count, too: with the
// newest one all are at most twice as many bytes as the limit.
//
// Thread safety: all functions may be called on any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace wideep::server {

struct StoredResponse {
  std::string response;      // the object, as its reply had it
  std::string conversation;  // the items that it answers, earlier ones included: a list

  size_t bytes() const { return response.size() + conversation.size(); }
};

struct ResponseStoreLimits {
  uint64_t count = 1000;
  uint64_t bytes = uint64_t{64} << 20;  // of JSON text, all of them together
};

class ResponseStore {
 public:
  explicit ResponseStore(ResponseStoreLimits limits) : limits_(limits) {}

  // Whether one of at least so many bytes may be kept.
  bool may_keep(size_t bytes) const { return limits_.count > 0 && bytes <= limits_.bytes; }
  const ResponseStoreLimits& limits() const { return limits_; }

  // One that is larger than all may be is not kept.
  void add(const std::string& id, StoredResponse response);
  // Null: there is none of this id, or no longer.
  std::shared_ptr<const StoredResponse> find(const std::string& id) const;
  bool erase(const std::string& id);  // false: there was none

  // As find(), for the request that goes on from it: also what it was lent.
  std::shared_ptr<const StoredResponse> previous(const std::string& id) const;

  // For another process, which goes on with a reply that depends on the stored response (null: on
  // none, ""). It is lent to that request alone, while the loan is held, since it may have been
  // erased meanwhile.
  static std::string record_of(const std::string& id, const StoredResponse* response);
  class Loan;
  std::shared_ptr<const Loan> lend(std::string_view record);  // null: nothing

  size_t size() const;
  size_t bytes() const;
  // With those that have made room, or were erased, and are held.
  size_t held_bytes() const { return *held_bytes_; }
  // For Prometheus.
  std::string metrics() const;

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    uint64_t number = 0;  // of the call of add()
  };
  using Entries = std::map<std::string, Entry>;
  void drop(Entries::iterator entry);
  void make_room();
  std::shared_ptr<const StoredResponse> counted(StoredResponse response) const;

  const ResponseStoreLimits limits_;
  // Of all that were added and that somebody holds, who may outlive the store.
  const std::shared_ptr<std::atomic<size_t>> held_bytes_ = std::make_shared<std::atomic<size_t>>(0);
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Entries entries_;
  std::map<uint64_t, std::string> ids_;  // by number: from the oldest to the newest
  std::multimap<std::string, std::shared_ptr<const StoredResponse>> lent_;
  uint64_t num_added_ = 0;
  size_t bytes_ = 0;
  uint64_t evicted_ = 0;
};

// Outlived by the store.
class ResponseStore::Loan {
 public:
  Loan(ResponseStore& store, const std::string& id, StoredResponse response);
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  ResponseStore& store_;
  std::multimap<std::string, std::shared_ptr<const StoredResponse>>::iterator entry_;
};

}  // namespace wideep::server
