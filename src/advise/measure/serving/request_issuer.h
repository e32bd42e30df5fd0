// SPDX-License-Identifier: Apache-2.0
//
// Submits requests to a running engine: first those of the warm-up; when all of these have
// finished, the measured ones, each at its arrival time, and not before fewer than `concurrency`
// requests run; the first of them together, where that is wanted. At the end it closes the stream of
// requests (RequestWriter::finish).
//
// Thread safety: start(), finished() and end() on the thread that handles the engine's events; the
// issuer has one thread of its own between start() and end().
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
    std::vector<double> arrivals;  // of the measured requests, in seconds from the first
    int concurrency = 1;
    // The first measured requests, so many, begin in one iteration, when the last of them has
    // arrived; 0: each begins when it arrives. At most `concurrency`, and measured.size().
    int start_queue = 0;
  };
  explicit RequestIssuer(Plan plan);
  RequestIssuer(const RequestIssuer&) = delete;
  RequestIssuer& operator=(const RequestIssuer&) = delete;
  ~RequestIssuer();

  // REQUIRES: `writer` outlives end().
  void start(run::RequestWriter& writer);
  // Call when a request has received its last token.
  void finished();
  // Submits no more requests and joins the thread. May be called again.
  void end();

  // Submission time of each measured request; 0: never submitted. Call after end().
  const std::vector<int64_t>& start_ns() const { return start_ns_; }

 private:
  void run(run::RequestWriter& writer);
  bool submit(run::RequestWriter& writer, engine::Request request, double arrival_seconds);
  bool wait_for_arrival(double arrival_seconds);
  bool submit_first(run::RequestWriter& writer);
  bool wait_for_all();

  Plan plan_;
  std::vector<int64_t> start_ns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_ = 0;       // guarded by mutex_
  bool ending_ = false;   // guarded by mutex_
  int64_t begun_ns_ = 0;  // start of the warm-up or of the measured phase
  std::thread thread_;
};

}  // namespace wideep::measure
