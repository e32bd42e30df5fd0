// SPDX-License-Identifier: Apache-2.0
//
// Servers that come and go, as entries of an etcd in TensorRT-LLM's form, so that its proxies and
// workers may share a cluster with these:
//
//   /trtllm-disagg/<cluster_name>/workers/<worker id> = {"worker_id", "host", "port", "role"}
//
// role 0 is a context server, 1 a generation server; one that does both has an entry of each. An
// entry lives as long as the lease of its server, which ends inactive_seconds after the last
// heartbeat.
//
//   server:  EtcdRegistration  grant ─▶ put ─▶ keep_alive every heartbeat_seconds ─▶ revoke
//                                ▲                 │ the lease is lost
//                                └─────────────────┘
//   proxy:   EtcdWatch         range every second ─▶ the list, whenever it is another
//
// An etcd that is away changes nothing: the proxy goes on with the last list, its health checks see
// who dies, and servers try again at every heartbeat. When it is back, perhaps empty, servers
// register anew within a heartbeat; until inactive_seconds are over the proxy misses nobody.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "disaggregated/etcd_gateway.h"
#include "parallel/disagg_cluster.h"
#include "server/membership.h"
#include "server/router_options.h"

namespace wideep::disaggregated {

// "/trtllm-disagg/<cluster_name>/workers/".
std::string worker_prefix(const std::string& cluster_name);
// The entries of one server. instance: of this start of the server, so that an old entry is not its.
std::vector<EtcdGateway::Entry> entries_of(const std::string& prefix,
                                           const server::RouterMember& member,
                                           const std::string& instance);
// The members of some entries, by address. Adds a line to *complaints for each that is no worker.
std::vector<server::RouterMember> members_of(const std::vector<EtcdGateway::Entry>& entries,
                                             std::vector<std::string>* complaints);

// Says that a server is there. Thread safety: all calls.
class EtcdRegistration : public server::Membership {
 public:
  // host: where others reach the server; "": the address from which this machine reaches the etcd.
  EtcdRegistration(const parallel::DisaggCluster& cluster, std::string host, engine::Role role);
  ~EtcdRegistration() override { end(); }
  EtcdRegistration(const EtcdRegistration&) = delete;
  EtcdRegistration& operator=(const EtcdRegistration&) = delete;

  void join(int port) override;
  void change_role(engine::Role role) override;
  void leave() override;
  void end() override;

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  // One step towards what is wanted: registers, sends a heartbeat, or takes the entries away.
  Status step(const std::optional<server::RouterMember>& wanted);
  Status put_entries(const server::RouterMember& member);
  Status take_away();  // REQUIRES: there is a lease
  void report(const Status& status);

  const parallel::DisaggCluster cluster_;
  const std::string host_;
  const std::string instance_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int> port_;  // guarded by mutex_; nullopt: not there
  engine::Role role_;        // guarded by mutex_
  bool is_changed_ = false;  // guarded by mutex_
  bool ends_ = false;        // guarded by mutex_

  // Of the thread.
  EtcdGateway etcd_;
  std::string lease_;                         // "": none
  std::set<std::string> keys_;                // that this server has put
  std::optional<server::RouterMember> told_;  // what they say
  bool was_there_ = false;                    // it has registered before
  bool is_away_ = false;                      // the etcd

  std::thread thread_;  // last: it uses the members above; guarded by mutex_
};

// The members of a cluster, as long as it lives. Thread safety: one thread makes and destroys it.
class EtcdWatch {
 public:
  // Called by a thread of its own whenever the list is another, first when the etcd has answered.
  using OnMembers = std::function<void(const std::vector<server::RouterMember>& members)>;

  EtcdWatch(const parallel::DisaggCluster& cluster, OnMembers on_members);
  ~EtcdWatch();
  EtcdWatch(const EtcdWatch&) = delete;
  EtcdWatch& operator=(const EtcdWatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void take(const EtcdGateway::Range& range);
  void report(const Status& status);

  const parallel::DisaggCluster cluster_;
  const OnMembers on_members_;
  EtcdGateway etcd_;
  // That were told; nullopt: none so far.
  std::optional<std::vector<server::RouterMember>> members_;
  std::set<std::string> complaints_;  // of the last range: they were logged
  int64_t revision_ = 0;
  bool is_away_ = false;
  Clock::time_point nobody_goes_until_ = {};  // see the top of this file

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;   // guarded by mutex_
  std::thread thread_;  // last: it uses the members above
};

}  // namespace wideep::disaggregated
