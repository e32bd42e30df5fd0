// SPDX-License-Identifier: Apache-2.0
//
// Extends flags and segments to nodes whose memory a rank does not share. To raise a flag or write
// into a segment there, a rank sends a message to its proxy on that node (NodeMap::proxy), and the
// proxy does it. So each node's memory has flags and a segment for every rank of the world. Those
// of ranks on other nodes are images, which the ranks' proxies write.
//
// A rank sends all messages for a proxy over one link, and they arrive in order: bytes that were
// sent before a flag are visible when the flag is. One message serves all ranks of the node.
//
// Proxies have no thread of their own: a rank handles messages that have arrived whenever it waits
// for something (Endpoint::wait). That is often enough, because all ranks take part in the same
// steps: when a rank waits for a flag of another node, the sender's proxy waits for the same flag.
//
// Thread safety: one thread, that of the rank's endpoints. Any thread may call report() and
// notify(): they queue the message, and the endpoints' thread sends it when it next handles
// messages.
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

// Classes of bytes sent between nodes, each counted separately.
enum class Traffic : int { kRows, kResults, kOther, kCount };

// A message for the proxy's handler (set_on_parcel), in parts that are appended. It starts with
// room for the bridge's header.
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
  // Appends `count` bytes for the caller to fill; valid until the next append.
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
  // memory: that of this rank's node, with a segment for every rank of the world.
  Bridge(std::shared_ptr<SharedMemory> memory, Link& link, NodeMap nodes, int rank);

  const NodeMap& nodes() const { return nodes_; }
  int node() const { return nodes_.node_of(rank_); }
  bool is_on_this_node(int rank) const { return nodes_.node_of(rank) == node(); }
  // Whether this rank is the only one of its node: then only progress() raises flags here.
  bool is_alone() const { return nodes_.ranks_of(node()).size() == 1; }

  // ---- send to other nodes. peers: ranks of the world; those on this node are skipped ----
  //
  // What write, copy and send have sent may leave only with the next raise to the same node, or
  // with progress().

  struct FlagRaise {
    Group kind;
    Channel channel;
    uint32_t value;
  };
  // Raises this rank's flag on the peers' nodes, with its words for them and, on Channel::kAgree,
  // its agreed words.
  void raise(const FlagRaise& flag, std::span<const int> peers);
  // Writes the bytes at this offset into the segment of each peer.
  void write(size_t offset, std::span<const std::byte> bytes, std::span<const int> peers);
  // `rows` pieces of `width` bytes, `stride` apart, in a segment.
  struct Block {
    size_t offset;
    size_t width;
    size_t stride;
    size_t rows;
  };
  // Copies the blocks from this node's segment of `owner` to the segment of `owner` on the peers'
  // nodes.
  void copy(int owner, std::span<const Block> blocks, std::span<const int> peers);
  // Sends the parcel to this rank's proxy on `node` (set_on_parcel).
  void send(int node, Parcel parcel, Traffic traffic);
  // Fails the group on all other nodes.
  void send_failure(const Status& status);
  // Sends the message to rank 0 (set_on_report). Rank 0 itself may call it too.
  void report(std::string message);
  // Sends the message to every other rank, on all nodes (next_command). Commands keep their order.
  void command(std::string_view message);
  // Sends the message to this rank's proxy on `node` (set_on_notice). Notices keep their order.
  void notify(int node, Bytes message);

  // ---- receive ----

  // Sends queued messages, then handles one message if one has arrived. False: there was none.
  bool progress();
  // After progress() has found nothing: waits until a message may have arrived, for `at_most` or
  // less.
  void wait(std::chrono::nanoseconds at_most) { link_.wait(at_most); }
  // from: the sender, whose proxy this rank is. Without a handler parcels are dropped. The handler
  // returns false for one that would write beyond the memory: then the group fails.
  using OnParcel = std::function<bool(int from, std::span<const std::byte>)>;
  void set_on_parcel(OnParcel handler) { on_parcel_ = std::move(handler); }
  void set_on_report(std::function<void(int from, std::string_view)> handler) {
    on_report_ = std::move(handler);
  }
  // The same: false: the notice is wrong.
  using OnNotice = std::function<bool(std::span<const std::byte>)>;
  void set_on_notice(OnNotice handler) { on_notice_ = std::move(handler); }

  // Takes the oldest command received; empty if there is none. Commands are queued without limit,
  // because rank 0 may send them while this rank is still starting.
  std::optional<std::string> next_command();

  // Ends communication: announces that this rank sends nothing more, and waits until the ranks
  // whose proxy it is have announced the same and its own messages have left. Collective. Errors:
  // the group's failure; deadline_exceeded.
  Status finish(std::chrono::milliseconds timeout);
  // After a failure, instead of finish: sends what is queued, for `at_most`, and waits for no rank.
  void flush(std::chrono::milliseconds at_most);

  // Bytes sent to other nodes so far.
  uint64_t sent_bytes(Traffic traffic) const { return sent_[static_cast<size_t>(traffic)]; }

 private:
  struct Header;

  std::vector<int> peers_on(int node, std::span<const int> peers) const;
  void send_to_proxy(int node, Bytes message, Traffic traffic);
  void send_before_flag(int node, Bytes message, Traffic traffic);
  void handle(int from, const Bytes& message);
  void refuse_message(int from, const char* what);
  bool is_here(int rank) const;
  bool is_elsewhere(int rank) const;
  // False: it names what this node does not have.
  bool handle_raise(int from, const Header& header, std::span<const std::byte> body);
  bool handle_write(int from, const Header& header, std::span<const std::byte> body);
  Bytes copy_message(int owner, std::span<const Block> blocks) const;
  bool handle_copy(int from, const Header& header, std::span<const std::byte> body);
  void send_queued();
  void send_report(const std::string& text);
  bool peers_are_done() const;

  std::shared_ptr<SharedMemory> memory_;
  Link& link_;
  NodeMap nodes_;
  int rank_;
  OnParcel on_parcel_;
  std::function<void(int, std::string_view)> on_report_;
  OnNotice on_notice_;
  std::deque<std::string> commands_;
  bool has_refused_ = false;   // a message: the group has failed
  std::vector<bool> is_done_;  // [num_ranks] ranks that have announced their end (finish)
  std::array<uint64_t, static_cast<size_t>(Traffic::kCount)> sent_ = {};
  struct Notice {
    int node;
    Bytes message;
  };
  std::mutex mutex_;  // guards the members below
  std::vector<std::string> reports_;
  std::vector<Notice> notices_;
};

}  // namespace wideep::transport
