// SPDX-License-Identifier: Apache-2.0
//
// The endpoints that change the service: another number of ranks, recordings of experts' loads, and
// whether it takes requests.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "http/exchange.h"
#include "server/replies.h"
#include "server/service_state.h"
#include "server/text_service.h"

namespace wideep::server {

class AdminService {
 public:
  // All outlive it.
  AdminService(ServiceState& state, TextService& text, Replies& replies)
      : state_(state), text_(text), replies_(replies) {}

  // Lets clients change the number of ranks. want: RankGroup::want. call_in: runs a function on the
  // serving thread after so many seconds.
  void connect_scaling(std::function<Status(int num_ranks)> want,
                       std::function<void(int seconds, std::function<void()>)> call_in);
  // told: called on each change of whether requests for text are refused.
  void connect_draining(std::function<void(bool now)> told) { told_ = std::move(told); }
  // Whether they are; the server stays in both cases.
  void set_draining(bool now);

  // A client waits for another number of ranks, or for what it has recorded.
  bool is_busy() const { return scaling_ || state_.recorder.is_busy(); }

  void scale(const std::shared_ptr<Exchange>& exchange);
  void drain(const std::shared_ptr<Exchange>& exchange);
  void end_drain(const std::shared_ptr<Exchange>& exchange) { set_and_reply(exchange, false); }
  void is_scaling(const std::shared_ptr<Exchange>& exchange);
  void start_record(const std::shared_ptr<Exchange>& exchange);
  void stop_record(const std::shared_ptr<Exchange>& exchange);
  void dump_record(const std::shared_ptr<Exchange>& exchange);

 private:
  void set_and_reply(const std::shared_ptr<Exchange>& exchange, bool now);
  int wanted_before(Exchange& exchange) const;
  ExpertRecorder::Done reply_with_outcome(const std::shared_ptr<Exchange>& exchange,
                                          const char* what);

  ServiceState& state_;
  TextService& text_;
  Replies& replies_;
  std::function<void(bool)> told_;
  std::function<Status(int)> want_;
  std::function<void(int, std::function<void()>)> call_in_;
  uint64_t scalings_ = 0;
  bool scaling_ = false;  // a client waits for it
};

}  // namespace wideep::server
