// SPDX-License-Identifier: Apache-2.0
//
// Before anything is loaded, ranks make sure that they were told the same: the promise of equal
// bits and every buffer's size rest on it.
//
// Thread safety: pure functions, but for the meeting.
#pragma once

#include <array>
#include <cstdint>

#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::engine {

struct RankSetup;

// What must be equal, one word each: small numbers themselves, else a hash.
enum class SharedSetting {
  kVersion,       // of the build
  kModel,         // config.json and the weights' formats
  kKernels,       // instruction set
  kPlacement,     // slots, experts, share_update
  kOnline,        // layer_updates_per_iter and the spares
  kMaxNumTokens,  // of a rank and iteration, and of a dispatch
  kRows,          // in what form they travel
  kBatch,         // parallel sizes, max_batch_size, prefill chunk, KV cache, threads per rank
  kCount
};
using SettingWords = std::array<uint64_t, static_cast<size_t>(SharedSetting::kCount)>;
static_assert(SettingWords().size() == transport::AgreedWords().size());

SettingWords setting_words(const RankSetup& setup);

// Collective. Errors (invalid input) name the first setting that differs, and whose.
Status shake_hands(const SettingWords& mine, transport::Endpoint& endpoint);

}  // namespace wideep::engine
