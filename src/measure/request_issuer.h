// SPDX-License-Identifier: Apache-2.0
//
// Gives requests to a running engine: first those that warm up, then, when these have ended, the
// measured ones, each at its time of arrival and when fewer than so many run; then tells the ranks
// that no more come.
//
// Thread safety: start(), finished() and end() on the thread that serves; the issuer has one thread
// of its own between start() and end().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "run/request_writer.h"

namespace wideep::measure {

class RequestIssuer {
 public:
  struct Plan {
    std::vector<engine::Request> warmup;
    std::vector<engine::Request> measured;
    std::vector<double> arrivals;  // of the measured, in seconds from the first
    int concurrency = 1;
  };
  explicit RequestIssuer(Plan plan);
  RequestIssuer(const RequestIssuer&) = delete;
  RequestIssuer& operator=(const RequestIssuer&) = delete;
  ~RequestIssuer();

  // The writer stays until end().
  void start(run::RequestWriter& writer);
  // A request has had its last token.
  void finished();
  // Gives no more, and joins. May be called again.
  void end();

  // When each measured request was given; 0: never. After end().
  const std::vector<int64_t>& start_ns() const { return start_ns_; }

 private:
  void run(run::RequestWriter& writer);
  bool give(run::RequestWriter& writer, engine::Request request, double arrival_seconds);
  bool wait_for_all();

  Plan plan_;
  std::vector<int64_t> start_ns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;       // guarded by mutex_
  bool ending_ = false;   // guarded by mutex_
  int64_t begun_ns_ = 0;  // of the phase
  std::thread thread_;
};

}  // namespace wideep::measure
