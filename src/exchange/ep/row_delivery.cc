// SPDX-License-Identifier: Apache-2.0
//
// Writing to another rank's segment means taking cache lines from another core, which is what a
// dispatch of few tokens spends its time on. So the list of a message some places ahead is fetched
// for writing, and the loop over slots writes without a branch: for ranks on other nodes it writes
// to a list that nobody reads.
#include "ep/row_delivery.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace wideep::ep {
namespace {

// A list of slots is prefetched this many messages before it is written: fetching its cache line
// takes about as long as copying that many rows.
constexpr int kListsToWriteAhead = 4;

// Fetches a cache line for writing. Otherwise a store to a line that another core has would block
// later stores: x86 commits stores in order.
void fetch_to_write(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

// ---- Strategy::kDispatch ----

class PushDelivery final : public RowDelivery {
 public:
  PushDelivery(const GroupBuffers& buffers, NodeCrossing* crossing)
      : buffers_(buffers),
        crossing_(crossing),
        next_messages_(static_cast<size_t>(buffers.num_ranks)),
        num_messages_(static_cast<size_t>(buffers.num_ranks)),
        unread_list_(2 * static_cast<size_t>(buffers.layout.shape().top_k)) {}

  void start(DispatchCall& call) override;
  void deliver(const Token& token, const TokenDestinations& to) override;
  void finish() override {
    if (crossing_ != nullptr) crossing_->send_rows();
  }
  int num_messages_for(int peer) const override { return num_messages_[peer]; }

 private:
  // The address of the next message to a rank. For a rank on another node, to which NodeCrossing
  // sends: row is null, and list is a dummy that is written but never read, so that write_lists
  // needs no branch.
  struct NextMessage {
    int32_t* list = nullptr;
    std::byte* row = nullptr;
  };

  void write_lists(const Token& token, const TokenDestinations& to);
  void advance(const TokenDestinations& to);

  const GroupBuffers& buffers_;
  NodeCrossing* crossing_;
  DispatchCall* call_ = nullptr;
  std::vector<NextMessage> next_messages_;  // [ep_size]
  std::vector<int32_t> num_messages_;       // [ep_size] of the call so far
  std::vector<int32_t> unread_list_;        // [2 · top_k] dummy for slots and weights
};

void PushDelivery::start(DispatchCall& call) {
  call_ = &call;
  std::fill(num_messages_.begin(), num_messages_.end(), 0);
  const BufferLayout& layout = buffers_.layout;
  const int64_t area = call.areas[buffers_.rank];
  for (int to = 0; to < buffers_.num_ranks; ++to) {
    std::byte* segment = buffers_.segments[to];
    next_messages_[to] = buffers_.is_on_this_node[to] ? NextMessage{layout.slots(segment, area, 0),
                                                                    layout.row(segment, area, 0)}
                                                      : NextMessage{.list = unread_list_.data()};
  }
}

// Writes one message per rank: here the row and an empty list, in write_lists the slots.
void PushDelivery::deliver(const Token& token, const TokenDestinations& to) {
  const DispatchShape& shape = buffers_.layout.shape();
  const size_t ahead = kListsToWriteAhead * buffers_.layout.row_stride() / sizeof(int32_t);
  if (crossing_ != nullptr) {
    crossing_->add({call_->number, call_->areas[buffers_.rank], token.row, token.slots,
                    token.weights, to.owner_of_slot()});
  }
  for (const int32_t rank : to.ranks()) {
    const NextMessage& next = next_messages_[rank];
    if (next.row == nullptr) continue;
    std::fill_n(next.list, shape.top_k, -1);
    fetch_to_write(next.list + ahead);
    if (rank == buffers_.rank) {
      call_->own_rows.push_back(token.row);
    } else {
      std::memcpy(next.row, token.row, shape.row_bytes);
    }
  }
  write_lists(token, to);
  advance(to);
}

// Sizes are in local variables, because the compiler must assume that a store into a list may
// change members.
void PushDelivery::write_lists(const Token& token, const TokenDestinations& to) {
  const DispatchShape& shape = buffers_.layout.shape();
  const int top_k = shape.top_k, local_slots = shape.local_slots();
  for (int slice = 0; slice < shape.num_slices; ++slice) {
    const NextMessage* next_messages = next_messages_.data() + slice * buffers_.num_owners;
    for (int k = 0; k < top_k; ++k) {
      const int32_t owner = to.owner_of_slot()[k], place = to.place_of_slot()[k];
      int32_t* list = next_messages[owner].list;
      list[place] = token.slots[k] - owner * local_slots;  // as the owner numbers them
      if (token.weights != nullptr) buffers_.layout.weights_after(list)[place] = token.weights[k];
    }
  }
}

void PushDelivery::advance(const TokenDestinations& to) {
  const size_t stride = buffers_.layout.row_stride();
  for (const int32_t rank : to.ranks()) {
    ++num_messages_[rank];
    NextMessage& next = next_messages_[rank];
    if (next.row == nullptr) continue;
    next.row += stride;
    next.list += stride / sizeof(int32_t);
  }
}

// ---- Strategy::kAllGather ----

class PublishDelivery final : public RowDelivery {
 public:
  explicit PublishDelivery(const GroupBuffers& buffers) : buffers_(buffers) {}

  void start(DispatchCall& call) override {
    call_ = &call;
    num_tokens_ = 0;
  }
  void deliver(const Token& token, const TokenDestinations& to) override;
  void finish() override {}
  int num_messages_for(int /*peer*/) const override { return num_tokens_; }

 private:
  const GroupBuffers& buffers_;
  DispatchCall* call_ = nullptr;
  int num_tokens_ = 0;  // of the call so far
};

// Publishes all slots of the token, since every reader looks for its own among them. Publishes the
// row only if another rank has one of the slots.
void PublishDelivery::deliver(const Token& token, const TokenDestinations& to) {
  const BufferLayout& layout = buffers_.layout;
  const int top_k = layout.shape().top_k;
  const int64_t area = layout.published_area(call_->buffer_set);
  std::byte* segment = buffers_.segments[buffers_.rank];
  const int message = num_tokens_++;
  std::copy_n(token.slots, top_k, layout.slots(segment, area, message));
  if (token.weights != nullptr) {
    std::copy_n(token.weights, top_k, layout.weights(segment, area, message));
  }
  call_->own_rows.push_back(token.row);
  const std::span<const int32_t> ranks = to.ranks();
  if (ranks.size() == 1 && ranks[0] == buffers_.rank) return;
  std::memcpy(layout.row(segment, area, message), token.row, layout.shape().row_bytes);
}

}  // namespace

std::unique_ptr<RowDelivery> RowDelivery::create(const GroupBuffers& buffers,
                                                 NodeCrossing* crossing) {
  if (buffers.publishes()) return std::make_unique<PublishDelivery>(buffers);
  return std::make_unique<PushDelivery>(buffers, crossing);
}

}  // namespace wideep::ep
