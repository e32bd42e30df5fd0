// SPDX-License-Identifier: Apache-2.0
//
// How a rank acts on nodes whose memory it does not share. What it would do there (raise flags,
// write into segments) it sends as a message to its proxy on that node (NodeMap::proxy), which does
// it in the rank's name. So on every node all ranks of the world have flags and a segment; those of
// ranks of other nodes are images, which their proxies keep up to date.
//
// A rank sends everything for one proxy over one link, and it arrives in order: bytes that were
// sent before a flag are there when the flag is. One message serves all ranks of the node.
//
// Proxies have no thread of their own: a rank handles the messages that have come whenever it waits
// for anything (Endpoint::wait). All ranks take part in the same steps, so a proxy waits for the
// rank that it acts for as often as any other rank of its node does.
//
// Thread safety: one thread, that of the rank's endpoints. report() and notify() may be called by
// any thread: what they are given is sent when the endpoints' thread next handles messages.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/link.h"
#include "transport/node_map.h"
#include "transport/shared_memory.h"
#include "wideep/status.h"

namespace wideep::transport {

// What crosses between nodes, counted apart.
enum class Traffic : int { kRows, kResults, kOther, kCount };

// Messages for the proxy's handler (set_on_parcel). Starts with room for a header.
class Parcel {
 public:
  static constexpr size_t kHeaderBytes = 32;

  explicit Parcel(size_t expected_bytes);

  template <typename T>
  void put(const T& value) {
    append(&value, sizeof(value));
  }
  void append(const void* bytes, size_t count) {
    const auto* first = static_cast<const std::byte*>(bytes);
    bytes_.insert(bytes_.end(), first, first + count);
  }
  // Adds so many bytes for the caller to fill, before the next is added.
  std::byte* extend(size_t count) {
    bytes_.resize(bytes_.size() + count);
    return bytes_.data() + bytes_.size() - count;
  }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class Bridge {
 public:
  // memory: of this rank's node, with room for all ranks of the world.
  Bridge(std::shared_ptr<SharedMemory> memory, Link& link, NodeMap nodes, int rank);

  const NodeMap& nodes() const { return nodes_; }
  int node() const { return nodes_.node_of(rank_); }
  bool is_near(int rank) const { return nodes_.node_of(rank) == node(); }

  // ---- to ranks of other nodes; those of this one among `peers` are left out ----

  struct FlagRaise {
    Group kind;
    Channel channel;
    uint32_t value;
  };
  // With the words beside this flag and, if it is kAgree, with the agreed words.
  void raise(const FlagRaise& flag, std::span<const int> peers);
  // At the same offset of each peer's segment.
  void write(size_t offset, std::span<const std::byte> bytes, std::span<const int> peers);
  // `rows` pieces of `width` bytes, `stride` apart, in a segment.
  struct Block {
    size_t offset;
    size_t width;
    size_t stride;
    size_t rows;
  };
  // What stands there on this node in the segment of `owner`, to the same places on the others.
  void copy(int owner, std::span<const Block> blocks, std::span<const int> peers);
  // To the handler of this rank's proxy on another node.
  void send(int node, Parcel parcel, Traffic traffic);
  // Lets all nodes know that the group has failed.
  void tell_failure(const Status& status);
  // A message for the handler of rank 0 (set_on_report), whatever node this is.
  void report(std::string message);
  // For every other rank (next_command), of this node too, in the order given.
  void command(std::string_view message);
  // For the handler of this rank's proxy on another node (set_on_notice), in the order given.
  void notify(int node, Bytes message);

  // ---- from ranks of other nodes ----

  // Handles one message, if one has come; false: none.
  bool progress();
  // `from`: the sender, whose proxy this rank is. Without a handler parcels are dropped.
  void set_on_parcel(std::function<void(int from, std::span<const std::byte>)> handler) {
    on_parcel_ = std::move(handler);
  }
  void set_on_report(std::function<void(int from, std::string_view)> handler) {
    on_report_ = std::move(handler);
  }
  void set_on_notice(std::function<void(std::span<const std::byte>)> handler) {
    on_notice_ = std::move(handler);
  }

  // The oldest command not yet taken. They are kept: rank 0 may send them while this rank still
  // starts.
  std::optional<std::string> next_command();

  // This rank has nothing more to send. Returns when the ranks whose proxy it is have nothing more
  // either and all that was sent has left, when the group has failed, or at the deadline.
  // Collective.
  Status finish(std::chrono::milliseconds timeout);
  // After a failure: what is queued may leave, but nobody is waited for.
  void flush(std::chrono::milliseconds at_most);

  // Bytes that have been sent to other nodes.
  uint64_t sent_bytes(Traffic traffic) const { return sent_[static_cast<size_t>(traffic)]; }

 private:
  struct Header;

  std::vector<int> peers_on(int node, std::span<const int> peers) const;
  void send_to_proxy(int node, Bytes message, Traffic traffic);
  void take_in(int from, const Bytes& message);
  void act_raise(int from, const Header& header, const std::byte* body);
  void act_write(const Header& header, std::span<const std::byte> body);
  Bytes copy_message(int owner, std::span<const Block> blocks) const;
  void act_copy(const Header& header, const std::byte* body);
  void send_queued();
  void send_report(const std::string& text);
  bool others_are_done() const;

  std::shared_ptr<SharedMemory> memory_;
  Link& link_;
  NodeMap nodes_;
  int rank_;
  std::function<void(int, std::span<const std::byte>)> on_parcel_;
  std::function<void(int, std::string_view)> on_report_;
  std::function<void(std::span<const std::byte>)> on_notice_;
  std::deque<std::string> commands_;
  std::vector<bool> is_done_;  // [num_ranks] which ranks have nothing more to send
  std::array<uint64_t, static_cast<size_t>(Traffic::kCount)> sent_ = {};
  struct Notice {
    int node;
    Bytes message;
  };
  std::mutex mutex_;  // guards what follows
  std::vector<std::string> reports_;
  std::vector<Notice> notices_;
};

}  // namespace wideep::transport
