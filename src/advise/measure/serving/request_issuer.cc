// SPDX-License-Identifier: Apache-2.0
#include "measure/serving/request_issuer.h"

#include <chrono>
#include <utility>

#include "base/cpu_time.h"

namespace wideep::measure {

RequestIssuer::RequestIssuer(Plan plan)
    : plan_(std::move(plan)), start_ns_(plan_.measured.size(), 0) {}

RequestIssuer::~RequestIssuer() { end(); }

void RequestIssuer::start(run::RequestWriter& writer) {
  thread_ = std::thread([this, &writer] { run(writer); });
}

void RequestIssuer::finished() {
  const std::lock_guard lock(mutex_);
  --running_;
  changed_.notify_one();
}

void RequestIssuer::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void RequestIssuer::run(run::RequestWriter& writer) {
  begun_ns_ = base::wall_ns();
  for (engine::Request& request : plan_.warmup) {
    if (!submit(writer, std::move(request), 0.0)) return;
  }
  if (!wait_for_all()) return;
  begun_ns_ = base::wall_ns();
  if (!submit_first(writer)) return;
  for (auto i = static_cast<size_t>(plan_.start_queue); i < plan_.measured.size(); ++i) {
    if (!submit(writer, std::move(plan_.measured[i]), plan_.arrivals[i])) return;
  }
  if (wait_for_all()) writer.finish();
}

// Returns false if end() was called first. The waits need no deadline of their own: they end when a
// running request does, and the ranks' own waits have deadlines.
bool RequestIssuer::submit(run::RequestWriter& writer, engine::Request request,
                           double arrival_seconds) {
  if (!wait_for_arrival(arrival_seconds)) return false;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || running_ < plan_.concurrency; });
  if (ending_) return false;
  ++running_;
  lock.unlock();  // finished() must not have to wait for the submission
  const size_t first = plan_.warmup.size();
  const auto index = static_cast<size_t>(request.index);
  if (index >= first) start_ns_[index - first] = base::wall_ns();
  writer.submit(std::move(request));
  return true;
}

// Returns false if end() was called first.
bool RequestIssuer::wait_for_arrival(double arrival_seconds) {
  std::unique_lock lock(mutex_);
  const auto early = std::chrono::nanoseconds(
      begun_ns_ + static_cast<int64_t>(arrival_seconds * 1e9) - base::wall_ns());
  if (early.count() > 0) changed_.wait_for(lock, early, [&] { return ending_; });
  return !ending_;
}

// Nothing runs, so the ranks begin all of them in the same iteration. Each counts from its arrival:
// it waits in the queue from then on.
bool RequestIssuer::submit_first(run::RequestWriter& writer) {
  std::vector<engine::Request> waiting;
  for (size_t i = 0; i < static_cast<size_t>(plan_.start_queue); ++i) {
    if (!wait_for_arrival(plan_.arrivals[i])) return false;
    start_ns_[i] = base::wall_ns();
    waiting.push_back(std::move(plan_.measured[i]));
  }
  if (waiting.empty()) return true;
  {
    const std::lock_guard lock(mutex_);
    running_ += static_cast<int>(waiting.size());
  }
  writer.submit_together(std::move(waiting));
  return true;
}

bool RequestIssuer::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || running_ == 0; });
  return !ending_;
}

}  // namespace wideep::measure
