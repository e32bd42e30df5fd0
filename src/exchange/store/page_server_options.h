// SPDX-License-Identifier: Apache-2.0
//
// What a page server is given, and what it takes of its clients (page_server.h).
//
// Thread safety: plain values.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "transport/tcp.h"

namespace wideep::store {

// Of a request whose prompt somebody waits for.
enum class RequestState : uint8_t {
  kUnknown,   // it has not come, or it was long ago
  kComputes,  // more pages may come
  kEnded,     // of all pages that it has computed, those that are kept are there or come soon
};

struct RequestStatus {
  RequestState state = RequestState::kUnknown;
  std::chrono::milliseconds ended_before = {};  // kEnded: so long ago
};

// Of servers that follow each other. Any thread.
struct PageServerCounts {
  std::atomic<uint64_t> looks = 0;               // PAGES.HAS
  std::atomic<uint64_t> records = 0, bytes = 0;  // PAGES.GET of what was there
};

struct PageServerOptions {
  transport::PeerAddress address;  // port 0: any that is free
  std::string token;               // not empty
  std::string record_class;
  // Of those who compute pages for this server, its ranks on other nodes; "": nobody may offer.
  // Not the other token, which goes around with requests.
  std::string offering_token = {};
  // By a name that both sides know; called on the server's thread. Null: none is known.
  std::function<RequestStatus(std::string_view request)> state_of = {};
  PageServerCounts* counts = nullptr;  // outlives the server; null: nobody counts
};

struct PageServerLimits {
  // Each rank of each server that takes pages has one for a minute after the last.
  static constexpr size_t kMaxConnections = 4096;
  static constexpr uint64_t kMaxCommandBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMaxUnsentBytes = uint64_t{16} << 20;  // and one value
  static constexpr uint64_t kMaxOfferBytes = kMaxUnsentBytes + (uint64_t{1} << 20);
  static constexpr size_t kMaxHeads = 64;
};

}  // namespace wideep::store
