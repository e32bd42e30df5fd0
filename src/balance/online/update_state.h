// SPDX-License-Identifier: Apache-2.0
//
// The life of one layer's update, and how ranks agree about it (docs/online_updates.md):
//
//            updater                 updater               all ranks, at the same iteration
//   idle ──────────────▶ copying ──────────────▶ ready ─────────────────────────▶ published
//    ▲                      │                      │                                  │
//    │                      └──────▶ failed ───────┴──────────▶ cancelled             │
//    │                                                             │     updater      │
//    └─────────────────────────────────────────────────────────────┴──────────────────┘
//
// Two threads of a rank own a layer's record in turn: the updater while it is idle, copying,
// published or cancelled, the engine while it is ready or failed. The owner may change the state,
// by a release store that pairs with the other thread's acquire load.
//
// Before each iteration every rank publishes, in the words that ranks exchange, which layers are
// done (ready or failed) and which of them are ready. A layer is decided when it is done on all
// ranks: published if it is ready on all, cancelled otherwise. Every rank reads the same words, so
// all decide the same before the same iteration, without a further message.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/shared_memory.h"

namespace wideep::online {

enum class UpdateState : uint8_t { kIdle, kCopying, kReady, kFailed, kPublished, kCancelled };

// Layers are positions among the model's MoE layers.
inline constexpr int kMaxLayers = 192;

// The words that hold layer states; the engine uses the others.
inline constexpr int kFirstDoneWord = 2;
inline constexpr int kFirstReadyWord = 5;

using LayerBits = std::array<uint64_t, kMaxLayers / 64>;

inline bool has(const LayerBits& bits, int layer) {
  return (bits[layer / 64] >> layer % 64 & 1) != 0;
}
inline bool any(const LayerBits& bits) { return (bits[0] | bits[1] | bits[2]) != 0; }

// Adds a layer's state to the words of this rank.
inline void add_state(UpdateState state, int layer, transport::AgreedWords& words) {
  const uint64_t bit = uint64_t{1} << layer % 64;
  if (state == UpdateState::kReady) words[kFirstReadyWord + layer / 64] |= bit;
  if (state == UpdateState::kReady || state == UpdateState::kFailed) {
    words[kFirstDoneWord + layer / 64] |= bit;
  }
}

// The layers that all ranks switch, and those whose update all give up.
struct Decision {
  LayerBits publish = {};
  LayerBits cancel = {};
};

inline Decision decide(std::span<const transport::AgreedWords> of_ranks) {
  Decision decision;
  for (size_t i = 0; i < decision.publish.size(); ++i) {
    uint64_t done = ~uint64_t{0}, ready = done;
    for (const transport::AgreedWords& words : of_ranks) {
      done &= words[kFirstDoneWord + i];
      ready &= words[kFirstReadyWord + i];
    }
    decision.publish[i] = ready;
    decision.cancel[i] = done & ~ready;
  }
  return decision;
}

}  // namespace wideep::online
