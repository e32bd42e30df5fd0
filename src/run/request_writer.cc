// SPDX-License-Identifier: Apache-2.0
#include "run/request_writer.h"

#include <algorithm>
#include <utility>

namespace wideep::run {

using engine::Command;
using engine::Request;

RequestWriter::RequestWriter(const std::vector<int>& fds, int num_owners)
    : tokens_of_owner_(static_cast<size_t>(num_owners)) {
  for (const int fd : fds) pipes_.push_back(std::make_unique<transport::MessagePipe>(fd));
}

void RequestWriter::submit(Request request) {
  const std::lock_guard lock(mutex_);
  const auto least = std::min_element(tokens_of_owner_.begin(), tokens_of_owner_.end());
  submit_to(static_cast<int>(least - tokens_of_owner_.begin()), std::move(request));
}

void RequestWriter::submit_together(std::vector<Request> requests, Reports reports) {
  const std::lock_guard lock(mutex_);
  if (reports == Reports::kWhenIdle) write(Command::Kind::kReportWhenIdle);
  write(Command::Kind::kHold);
  const size_t num_owners = tokens_of_owner_.size();
  for (size_t i = 0; i < requests.size(); ++i) {
    submit_to(static_cast<int>(i % num_owners), std::move(requests[i]));
  }
  write(Command::Kind::kRelease);
}

void RequestWriter::submit_to(int owner, Request request) {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  running_[request.index] = {owner, tokens};
  tokens_of_owner_[static_cast<size_t>(owner)] += tokens;
  write({.kind = Command::Kind::kSubmit, .owner = owner, .request = std::move(request)});
}

void RequestWriter::cancel(int index) {
  const std::lock_guard lock(mutex_);
  subtract_load(index);
  write({.kind = Command::Kind::kCancel, .request = {.index = index}});
}

void RequestWriter::record_experts(bool records) {
  const std::lock_guard lock(mutex_);
  write(records ? Command::Kind::kRecordExperts : Command::Kind::kEndRecord);
}

void RequestWriter::finish() {
  const std::lock_guard lock(mutex_);
  write(Command::Kind::kFinish);
}

void RequestWriter::stop() {
  const std::lock_guard lock(mutex_);
  write(Command::Kind::kStop);
}

void RequestWriter::finished(int index) {
  const std::lock_guard lock(mutex_);
  subtract_load(index);
}

// Errors are ignored: they mean that a rank has ended, which RankGroup::result() reports.
void RequestWriter::write(const Command& command) {
  const std::string message = encoder_.encode(command);
  for (const auto& pipe : pipes_) {
    [[maybe_unused]] const Status sent = pipe->send(message);
  }
}

// The request may be unknown: it may both be cancelled and have its last token in flight.
void RequestWriter::subtract_load(int index) {
  const auto found = running_.find(index);
  if (found == running_.end()) return;
  tokens_of_owner_[static_cast<size_t>(found->second.owner)] -= found->second.tokens;
  running_.erase(found);
}

}  // namespace wideep::run
