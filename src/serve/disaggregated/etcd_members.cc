// SPDX-License-Identifier: Apache-2.0
#include "disaggregated/etcd_members.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/numeric_address.h"
#include "base/printable.h"
#include "base/random_hex.h"
#include "base/try.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::disaggregated {
namespace {

using engine::Role;
using nlohmann::json;
using server::RouterMember;

constexpr std::chrono::milliseconds kLookEvery{1000};
// Of TensorRT-LLM's ServerRole.
constexpr int kContextRole = 0, kGenerationRole = 1;

// A worker's entry; nullopt: it is none.
std::optional<RouterMember> member_of_entry(const EtcdGateway::Entry& entry) {
  const auto value = formats::parse_json(entry.value, entry.key);
  if (!value.ok() || !value->is_object()) return std::nullopt;
  const auto host = value->find("host"), port = value->find("port"), role = value->find("role");
  if (host == value->end() || port == value->end() || role == value->end()) return std::nullopt;
  if (!host->is_string() || !port->is_number_integer() || !role->is_number_integer()) {
    return std::nullopt;
  }
  const auto number = port->get<int64_t>(), kind = role->get<int64_t>();
  if (number < 1 || number > 65535 || (kind != kContextRole && kind != kGenerationRole)) {
    return std::nullopt;
  }
  // As text, a host has the form that parse_replica() takes.
  const auto address =
      server::parse_replica(fmt::format("{}:{}", host->get_ref<const std::string&>(), number));
  if (!address.ok()) return std::nullopt;
  return RouterMember{*address, kind == kContextRole ? Role::kPrefill : Role::kDecode};
}

// The address from which this machine reaches another. Nothing is sent: a datagram socket that is
// connected has one.
Result<std::string> local_address_towards(const std::string& address) {
  const size_t colon = address.rfind(':');
  WIDEEP_TRY_ASSIGN(const std::string host, base::numeric_address(address.substr(0, colon)));
  addrinfo hints = {}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0) {
    return failed(address + ": no address");
  }
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  const int socket = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool is_bound = socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) == 0 &&
                        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  ::freeaddrinfo(found);
  if (socket >= 0) ::close(socket);
  std::array<char, NI_MAXHOST> text{};
  if (!is_bound || ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(),
                                 text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return failed(address + ": no way there");
  }
  return own.ss_family == AF_INET6 ? fmt::format("[{}]", text.data()) : std::string(text.data());
}

}  // namespace

std::string worker_prefix(const std::string& cluster_name) {
  return fmt::format("/trtllm-disagg/{}/workers/", cluster_name);
}

std::vector<EtcdGateway::Entry> entries_of(const std::string& prefix, const RouterMember& member,
                                           const std::string& instance) {
  std::vector<EtcdGateway::Entry> entries;
  const auto add = [&](const char* name, int role) {
    const std::string id =
        fmt::format("{}-{}:{}-{}", name, member.address.host, member.address.port, instance);
    const json value = {{"worker_id", id},
                        {"host", member.address.host},
                        {"port", member.address.port},
                        {"role", role}};
    entries.push_back({prefix + id, formats::json_text(value)});
  };
  if (member.prefills()) add("CONTEXT", kContextRole);
  if (member.decodes()) add("GENERATION", kGenerationRole);
  return entries;
}

std::vector<RouterMember> members_of(const std::vector<EtcdGateway::Entry>& entries,
                                     std::vector<std::string>* complaints) {
  std::map<std::string, RouterMember> members;  // by address
  for (const EtcdGateway::Entry& entry : entries) {
    const std::optional<RouterMember> member = member_of_entry(entry);
    if (!member) {
      complaints->push_back(fmt::format(
          "etcd: {}: expected a worker with host, port and role 0 or 1, found '{}'; it is left out",
          base::printable(entry.key, 120), base::printable(entry.value, 120)));
      continue;
    }
    const auto [known, is_new] = members.try_emplace(member->address.url(), *member);
    if (!is_new && known->second.role != member->role) known->second.role = Role::kBoth;
  }
  std::vector<RouterMember> list;
  for (auto& [url, member] : members) list.push_back(std::move(member));
  return list;
}

// ---- EtcdRegistration ----

EtcdRegistration::EtcdRegistration(const parallel::DisaggCluster& cluster, std::string host,
                                   Role role)
    : cluster_(cluster),
      host_(std::move(host)),
      instance_(base::random_hex(8)),
      role_(role),
      etcd_(cluster.etcd) {}

void EtcdRegistration::end() {
  std::thread ending;
  {
    const std::lock_guard lock(mutex_);
    port_.reset();
    ends_ = true;
    ending = std::move(thread_);
  }
  changed_.notify_one();
  if (ending.joinable()) ending.join();
}

void EtcdRegistration::join(int port) {
  {
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    port_ = port;
    is_changed_ = true;
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_one();
}

void EtcdRegistration::change_role(Role role) {
  {
    const std::lock_guard lock(mutex_);
    role_ = role;
    is_changed_ = true;
  }
  changed_.notify_one();
}

void EtcdRegistration::leave() {
  {
    const std::lock_guard lock(mutex_);
    port_.reset();
    is_changed_ = true;
  }
  changed_.notify_one();
}

void EtcdRegistration::run() {
  const std::chrono::seconds heartbeat{cluster_.heartbeat_seconds};
  for (bool ends = false; !ends;) {
    std::optional<RouterMember> wanted;
    {
      std::unique_lock lock(mutex_);
      is_changed_ = false;
      ends = ends_;
      if (port_) wanted = RouterMember{{.host = host_, .port = *port_}, role_};
    }
    if (wanted || !lease_.empty()) report(step(wanted));
    std::unique_lock lock(mutex_);
    if (!ends) changed_.wait_for(lock, heartbeat, [this] { return is_changed_ || ends_; });
  }
}

Status EtcdRegistration::step(const std::optional<RouterMember>& wanted) {
  if (!wanted) return take_away();
  RouterMember member = *wanted;
  if (member.address.host.empty()) {
    WIDEEP_TRY_ASSIGN(member.address.host, local_address_towards(cluster_.etcd));
  }
  if (!lease_.empty()) {
    WIDEEP_TRY_ASSIGN(const bool lives, etcd_.keep_alive(lease_));
    if (!lives) {
      lease_.clear();
      keys_.clear();
      told_.reset();
    }
  }
  if (lease_.empty()) {
    WIDEEP_TRY_ASSIGN(lease_, etcd_.grant(cluster_.inactive_seconds));
  }
  if (told_ == member) return {};
  WIDEEP_TRY(put_entries(member));
  log::info("etcd://{}: {} as {} in cluster '{}'", cluster_.etcd,
            was_there_ ? "registered again" : "registered", engine::name_of(member.role),
            cluster_.name);
  was_there_ = true;
  return {};
}

// New entries come before the old ones go: the server is never away in between.
Status EtcdRegistration::put_entries(const RouterMember& member) {
  std::set<std::string> old = keys_;
  for (const auto& entry : entries_of(worker_prefix(cluster_.name), member, instance_)) {
    WIDEEP_TRY(etcd_.put(entry, lease_));
    keys_.insert(entry.key);
    old.erase(entry.key);
  }
  for (const std::string& key : old) {
    WIDEEP_TRY(etcd_.remove(key));
    keys_.erase(key);
  }
  told_ = member;
  return {};
}

Status EtcdRegistration::take_away() {
  // Its keys end with it. One that has ended by itself cannot be revoked.
  if (const Status revoked = etcd_.revoke(lease_); !revoked.ok()) {
    WIDEEP_TRY_ASSIGN(const bool lives, etcd_.keep_alive(lease_));
    if (lives) return revoked;
  }
  lease_.clear();
  keys_.clear();
  told_.reset();
  return {};
}

void EtcdRegistration::report(const Status& status) {
  if (status.ok() == !is_away_) return;
  is_away_ = !status.ok();
  if (is_away_) {
    log::warn("{}; the proxy may not know that this server is there; tried again every {} s",
              status.message(), cluster_.heartbeat_seconds);
  } else {
    log::info("etcd://{} answers again", cluster_.etcd);
  }
}

// ---- EtcdWatch ----

EtcdWatch::EtcdWatch(const parallel::DisaggCluster& cluster, OnMembers on_members)
    : cluster_(cluster), on_members_(std::move(on_members)), etcd_(cluster.etcd) {
  thread_ = std::thread([this] { run(); });
}

EtcdWatch::~EtcdWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void EtcdWatch::run() {
  for (bool ends = false; !ends;) {
    const auto range = etcd_.range(worker_prefix(cluster_.name));
    report(range.status());
    if (range.ok()) take(*range);
    std::unique_lock lock(mutex_);
    ends = changed_.wait_for(lock, kLookEvery, [this] { return ends_; });
  }
}

void EtcdWatch::take(const EtcdGateway::Range& range) {
  const Clock::time_point now = Clock::now();
  const std::chrono::seconds inactive{cluster_.inactive_seconds};
  if (range.revision < revision_) nobody_goes_until_ = now + inactive;
  revision_ = range.revision;
  std::vector<std::string> complaints;
  std::vector<RouterMember> members = members_of(range.entries, &complaints);
  for (const std::string& each : complaints) {
    if (!complaints_.contains(each)) log::warn("{}", each);
  }
  complaints_ = {complaints.begin(), complaints.end()};
  if (members_ && now < nobody_goes_until_) {
    for (const RouterMember& old : *members_) {
      const bool is_there = std::ranges::any_of(members, [&](const RouterMember& each) {
        return each.address.url() == old.address.url();
      });
      if (!is_there) members.push_back(old);
    }
    std::ranges::sort(members, {}, [](const RouterMember& each) { return each.address.url(); });
  }
  if (members_ == members) return;
  members_ = std::move(members);
  on_members_(*members_);
}

void EtcdWatch::report(const Status& status) {
  if (status.ok() == !is_away_) return;
  is_away_ = !status.ok();
  if (is_away_) {
    log::warn("{}; the last list of servers stays in use", status.message());
  } else {
    nobody_goes_until_ = Clock::now() + std::chrono::seconds(cluster_.inactive_seconds);
    log::info("etcd://{} answers again", cluster_.etcd);
  }
}

}  // namespace wideep::disaggregated
