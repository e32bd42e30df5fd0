// SPDX-License-Identifier: Apache-2.0
//
// The numeric addresses of members that come and go, by a thread of its own: a look-up may block for
// seconds. Names are looked up again every few seconds, as one may have no address yet, or another
// one after its machine has begun anew (a pod of Kubernetes).
//
// Thread safety: all calls; the callback comes from that thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/router_options.h"
#include "server/router_replicas.h"
#include "wideep/status.h"

namespace wideep::server {

class RouterNames {
 public:
  // Gets all members whenever they, or what is known of their addresses, are others than before.
  using OnMembers = std::function<void(const std::vector<RouterReplicas::Resolved>& members)>;
  using LookUp = std::function<Result<std::string>(const ReplicaAddress& address)>;
  static constexpr std::chrono::milliseconds kEvery{3000};

  // look_up, every: others for tests.
  explicit RouterNames(OnMembers on_members, LookUp look_up = resolve,
                       std::chrono::milliseconds every = kEvery)
      : on_members_(std::move(on_members)), look_up_(std::move(look_up)), every_(every) {}
  RouterNames(const RouterNames&) = delete;
  RouterNames& operator=(const RouterNames&) = delete;

  // The first call begins the thread.
  void set(const std::vector<RouterMember>& members);

 private:
  void run(const std::stop_token& stop);
  std::vector<RouterReplicas::Resolved> look_up_all(const std::vector<RouterMember>& members);

  const OnMembers on_members_;
  const LookUp look_up_;
  const std::chrono::milliseconds every_;
  std::set<std::string>
      unknown_;  // of the thread: names without an address, which a line has named

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<RouterMember> members_;  // guarded by mutex_
  bool is_changed_ = false;            // guarded by mutex_
  std::jthread thread_;                // last: it uses the members above
};

}  // namespace wideep::server
