// SPDX-License-Identifier: Apache-2.0
//
// The endpoints by which a router of disaggregated serving knows this server: what it prefers to do,
// how much it has to do, and where its pages are; and by which its role changes while it serves.
//
//   GET  /v1/pd_role         where the pages are only for who may change the service
//   POST /pd_role_switch   {"new_role": "prefill" | "decode" | "both"}, answered when all ranks have
//                          heard of it
//
// A role is a preference: nothing is refused, and nothing is drained, when it changes.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "http/exchange.h"
#include "run/event.h"
#include "run/prefill_price.h"
#include "run/prompt_fetches.h"
#include "server/replies.h"
#include "server/service_options.h"
#include "server/service_state.h"
#include "server/transfer_log.h"
#include "server/transfer_metrics.h"

namespace wideep::server {

class PdService {
 public:
  // In which all ranks hear of a role.
  static constexpr int kPatienceSeconds = 10;

  // All outlive it.
  PdService(const ServiceOptions& options, const ServiceState& state, Replies& replies)
      : options_(options), state_(state), replies_(replies) {}

  struct Ranks {
    std::function<int(engine::Role)> change;  // RequestWriter::change_role
    // Of requests that have no token yet, what is not computed.
    std::function<int64_t()> prompt_tokens;
    std::function<run::PeerWaits()> peer_waits;  // RequestWriter::peer_waits
    // Runs a function on the serving thread after so many seconds.
    std::function<void(int seconds, std::function<void()>)> call_in;
  };
  // Ranks compute: they hear of the role, also of one that a process that has died had told them.
  // REQUIRES: ServiceOptions::role.
  void begin(Ranks ranks);
  void seen(const run::RoleSeen& seen);
  // now: seconds of a steady clock, here and below.
  void iteration_ended(const run::Iteration& iteration, double now) { price_.add(iteration, now); }
  // peer: as engine::Request::peer.
  void transferred(const run::PromptTransfer& transfer, std::string_view peer, double now);
  // A client waits for the ranks.
  bool is_busy() const { return !waiting_.empty(); }

  // tells_peer: also where other servers take pages.
  void role(const std::shared_ptr<Exchange>& exchange, bool tells_peer);
  void switch_role(const std::shared_ptr<Exchange>& exchange);
  std::string metrics() const;  // Prometheus
  // vLLM's names; "": pages are not shared. labels: of each series.
  std::string vllm_metrics(std::string_view labels) const;
  // For the dashboard: what is on its way now, and what came and was given; null: pages are not
  // shared.
  nlohmann::ordered_json sharing() const;

 private:
  // For a role that ranks have been told.
  struct Waiting {
    std::shared_ptr<Exchange> exchange;
    engine::Role before;
    uint64_t epoch;
  };
  engine::Role present() const;
  uint64_t epoch() const;
  nlohmann::ordered_json state_of(const Exchange& exchange, bool tells_peer) const;
  nlohmann::ordered_json load(double now) const;
  engine::Role before(Exchange& exchange) const;
  void give_up(int number);
  int64_t num_computing() const;
  run::PeerWaits waits() const {
    return ranks_.peer_waits ? ranks_.peer_waits() : run::PeerWaits();
  }

  const ServiceOptions& options_;
  const ServiceState& state_;
  Replies& replies_;
  Ranks ranks_;
  int told_ = 0, seen_ = 0;         // numbers of roles
  std::map<int, Waiting> waiting_;  // by the number
  run::PrefillPrice price_;
  TransferMetrics transfers_;
  TransferLog troubles_;
};

}  // namespace wideep::server
