// SPDX-License-Identifier: Apache-2.0
#include "server/router_names.h"

#include <optional>
#include <utility>

#include "base/log.h"

namespace wideep::server {

void RouterNames::set(const std::vector<RouterMember>& members) {
  const std::lock_guard lock(mutex_);
  members_ = members;
  is_changed_ = true;
  if (!thread_.joinable()) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  changed_.notify_one();
}

void RouterNames::run(const std::stop_token& stop) {
  std::optional<std::vector<RouterReplicas::Resolved>> told;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    is_changed_ = false;
    const std::vector<RouterMember> wanted = members_;
    lock.unlock();
    std::vector<RouterReplicas::Resolved> members = look_up_all(wanted);
    if (told != members) {
      told = std::move(members);
      on_members_(*told);
    }
    lock.lock();
    changed_.wait_for(lock, stop, every_, [this] { return is_changed_; });
  }
}

std::vector<RouterReplicas::Resolved> RouterNames::look_up_all(
    const std::vector<RouterMember>& members) {
  std::vector<RouterReplicas::Resolved> all;
  for (const RouterMember& each : members) {
    Result<std::string> numbers = look_up_(each.address);
    const std::string url = each.address.url();
    if (numbers.ok()) {
      unknown_.erase(url);
    } else if (unknown_.insert(url).second) {
      log::warn("{}: it is left out, or asked where it was before; looked up again every {} s",
                numbers.status().message(), every_.count() / 1000);
    }
    all.push_back({.member = each, .numbers = numbers.ok() ? std::move(*numbers) : ""});
  }
  return all;
}

}  // namespace wideep::server
