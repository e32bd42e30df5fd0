// SPDX-License-Identifier: Apache-2.0
//
// One list of fields for both ways, from the lowest bit up.
#include "engine/rank_state.h"

#include <algorithm>

namespace wideep::engine {
namespace {

constexpr uint64_t largest(int bits) { return ~uint64_t{0} >> (64 - bits); }

class BitWriter {
 public:
  template <typename T>
  void field(int bits, const T& value) {
    word_ |= std::min(static_cast<uint64_t>(value), largest(bits)) << at_;
    at_ += bits;
  }
  void skip(int bits) { at_ += bits; }
  uint64_t word() const { return word_; }

 private:
  uint64_t word_ = 0;
  int at_ = 0;
};

class BitReader {
 public:
  explicit BitReader(uint64_t word) : word_(word) {}

  template <typename T>
  void field(int bits, T& value) {
    value = static_cast<T>(word_ >> at_ & largest(bits));
    at_ += bits;
  }
  void skip(int bits) { at_ += bits; }

 private:
  uint64_t word_;
  int at_ = 0;
};

template <typename Bits, typename State>
void transfer_first(Bits& bits, State& state) {
  bits.field(1, state.has_work);
  bits.field(1, state.stop_requested);
  bits.field(1, state.readiness.has_prompts);
  bits.field(1, state.readiness.generates);
  bits.field(1, state.readiness.has_room);
  bits.field(1, state.change_requested);
  bits.field(21, state.pass_rows);
  bits.field(37, state.num_seen);
}

template <typename Bits, typename State>
void transfer_second(Bits& bits, State& state) {
  bits.field(21, state.num_tokens);
  bits.field(7, state.max_drafts);
  bits.skip(4);
  bits.field(31, state.last_step_us);
  bits.field(1, state.last_step_had_prompts);
}

}  // namespace

void pack(const RankState& state, transport::AgreedWords& words) {
  BitWriter first, second;
  transfer_first(first, state);
  transfer_second(second, state);
  words[0] = first.word();
  words[1] = second.word();
}

RankState unpack_rank_state(const transport::AgreedWords& words) {
  RankState state;
  BitReader first(words[0]), second(words[1]);
  transfer_first(first, state);
  transfer_second(second, state);
  return state;
}

}  // namespace wideep::engine
