// SPDX-License-Identifier: Apache-2.0
//
// A server of Redis' protocol (Redis, Valkey), or a cluster of them, as a place for records that
// many servers share. How they lie there: redis_record.h.
//
// What it keeps is its own decision, by its maxmemory-policy; records that nobody reads or offers
// expire (RedisOptions::ttl). Every call has a deadline; a server that is slow or gone makes it
// fail, and the caller waits before it asks again (places.h). The user needs the commands HKEYS,
// HGET, HSET, EXPIRE, UNLINK, MULTI, EXEC; DBSIZE and INFO for size(); in a cluster ASKING and
// CLUSTER SLOTS.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/place.h"
#include "store/redis_servers.h"

namespace wideep::store {

class RedisPlace final : public Place {
 public:
  // Connects to nobody yet. Errors (invalid input): a file of TLS.
  static Result<std::unique_ptr<RedisPlace>> make(RedisOptions options);

  // That it can be asked. Errors (failed, deadline exceeded): nobody is there, or does not answer;
  // (invalid input): it does not let us in.
  Status check();

  std::string_view label() const override { return "redis"; }
  std::vector<bool> find(std::span<const Head> heads) override;
  Status fetch(std::span<const FetchOrder> orders,
               const std::function<bool(size_t index, FetchResult result)>& done) override;
  OfferResult offer(const Head& head, std::span<const std::byte> payload, double seconds,
                    const std::function<bool()>& is_intact) override;
  void forget(const Name& name, Kind kind) override;
  PlaceCounts counts() const override { return counts_; }
  // Keys and memory of the whole server, whosever they are; of a cluster, of all. As it was at most
  // kSizeAge ago; zeros: it does not say. max_bytes 0: it has no limit.
  PlaceSize size() override;

  std::string_view trouble() const override { return trouble_; }

  static constexpr std::chrono::seconds kSizeAge{10};

 private:
  struct Plan;  // which parts an order is put together of

  explicit RedisPlace(RedisServers servers) : servers_(std::move(servers)) {}
  // What a key has.
  struct Listed {
    bool is_there = false;  // the server has answered
    size_t num_fields = 0;
    std::vector<Part> parts;
  };
  Status list_parts(std::span<const Head* const> heads, std::chrono::milliseconds limit,
                    std::vector<Listed>& listed);
  Listed parts_of(const RedisReply& reply, const Head& head);
  void ask_for(const Head& head, const Part& part, bool is_last, Plan& plan);
  Result<OfferResult> tell(const RedisQuestion& question);
  FetchResult take_part(const FetchOrder& order, const Part& part, const RedisReply& reply);
  std::string expire(const std::string& key) const;
  Status noted(Status status);

  RedisServers servers_;
  PlaceCounts counts_;
  PlaceSize size_;
  std::chrono::steady_clock::time_point size_until_ = {};
  std::string trouble_;
};

}  // namespace wideep::store
