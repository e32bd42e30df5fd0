// SPDX-License-Identifier: Apache-2.0
//
// Another server's memory as a place: what it has computed of a prompt is fetched (page_server.h).
// Nothing is offered to it but by those who compute for it.
//
// Of a peer on the same machine the memory itself is mapped, as soon as there is a connection:
// fetch() copies from there, beside its own ranks. What is asked again and again (find()) goes over
// the connection: it would hold the lock of the peer's ranks, and a process that is stopped
// meanwhile would hold it on. When the connection ends, the peer may be dead, and one that comes
// after it has other memory. Whatever fails with it is told by nothing but MemoryUse: the
// connection serves as well.
//
// Every call has a deadline, as those of RedisPlace; a peer that is slow, gone or another than it
// was makes it fail, and what it had is computed.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_bytes.h"
#include "store/host_tier.h"
#include "store/page_server.h"
#include "store/place.h"
#include "store/redis_servers.h"

namespace wideep::store {

struct PeerOptions {
  RedisHost host;
  std::string token;
  std::string record_class;  // of the records that are wanted
  bool offers = false;       // token: the one for that
  bool maps_memory = true;   // of a peer on the same machine
  // How long the peer keeps what find() has found for this side.
  std::chrono::milliseconds lease{3'000};
};

class PeerPlace final : public Place {
 public:
  // Connects to nobody yet.
  static Result<std::unique_ptr<PeerPlace>> make(const PeerOptions& options);

  // What the peer says of a request. limit: as of find(), at most. Errors (failed, deadline
  // exceeded): no answer.
  Result<RequestStatus> state(std::string_view request,
                              std::chrono::milliseconds limit = RedisServers::kNoLimit);

  // Of a peer whose memory is mapped: HostIndex::news(), which grows when a request has ended, too.
  // Nobody is asked. nullopt: it is not mapped.
  std::optional<uint64_t> news();

  std::string_view label() const override { return options_.offers ? "front" : "peer"; }
  std::vector<bool> find(std::span<const Head> heads) override;
  Status fetch(std::span<const FetchOrder> orders,
               const std::function<bool(size_t index, FetchResult result)>& done) override;
  // In several parts where one would take long on a slow network, or is more than the peer reads.
  // is_intact is called before each is sent, and may so end the offer: the same one, if it comes
  // next, goes on with that part.
  OfferResult offer(const Head& head, std::span<const std::byte> payload, double seconds,
                    const std::function<bool()>& is_intact) override;
  void forget(const Name&, Kind) override {}  // the peer checks its bytes itself
  PlaceCounts counts() const override { return counts_; }
  std::string_view trouble() const override { return trouble_; }
  PlaceSize size() override { return {}; }

  // Of the memory of a peer on this machine.
  struct MemoryUse {
    uint64_t mapped = 0;         // times
    uint64_t failures = 0;       // it was offered and could not be had, or used
    uint64_t fetched_bytes = 0;  // of those that were fetched
  };
  const MemoryUse& memory_use() const { return memory_use_; }

 private:
  PeerPlace(RedisServers servers, PeerOptions options)
      : servers_(std::move(servers)), options_(std::move(options)) {}
  Status noted(Status status);
  OfferResult offer_part(const Head& head, std::span<const std::byte> payload, double seconds,
                         const std::function<bool()>& is_intact);
  // Between two parts of an offer, or before the first.
  struct Interrupted {
    Name name;
    Kind kind = Kind::kPage;
    Part part;
    size_t sent = 0;  // of its parts
  };
  HostTier* memory();
  Status map_memory();
  Status fetch_from(HostTier& tier, std::span<const FetchOrder> orders, size_t& done,
                    const std::function<bool(size_t index, FetchResult result)>& each);

  RedisServers servers_;
  PeerOptions options_;
  base::SharedBytes memory_;        // before the tier on it
  std::unique_ptr<HostTier> tier_;  // null: none is mapped
  uint64_t asked_on_ = 0;           // the connection on which it was asked for
  MemoryUse memory_use_;
  std::optional<Interrupted> interrupted_;
  PlaceCounts counts_;
  std::string trouble_;
};

}  // namespace wideep::store
