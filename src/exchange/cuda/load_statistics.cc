// SPDX-License-Identifier: Apache-2.0
#include "cuda/load_statistics.h"

#include <fmt/format.h>

#include "base/try.h"

namespace wideep::cuda {
namespace {

// Zeros. Two streams use the memory, which the emulator takes for two devices.
template <typename T>
Status allocate_zeros(Devices& devices, int rank, size_t num_bytes, T** to) {
  WIDEEP_TRY_ASSIGN(std::byte* const memory, devices.allocate(rank, num_bytes, true));
  *to = reinterpret_cast<T*>(memory);
  return devices.clear(rank, memory, num_bytes);
}

}  // namespace

Result<LoadStatistics> LoadStatistics::create(Devices& devices, const Exchange& x, int num_layers,
                                              int num_threads) {
  const ExchangeShape& shape = x.layout.shape();
  const size_t shared = CountTokens::shared_bytes(shape);
  if (num_layers < 1 || shared > kMaxSharedBytes) {
    return invalid_input(
        fmt::format("statistics on GPUs: {} layers, expected at least 1; {} experts and {} slots "
                    "need {} bytes of shared memory in a block, expected at most {}",
                    num_layers, shape.num_experts, shape.num_slots(), shared, kMaxSharedBytes));
  }
  LoadStatistics made(devices, x, num_threads);
  made.sums_.num_layers = num_layers;
  made.sums_.num_columns = shape.num_experts + shape.num_slots();
  WIDEEP_TRY(allocate_zeros(devices, x.rank, 2 * made.sums_bytes(), &made.sums_.tokens));
  WIDEEP_TRY(allocate_zeros(devices, x.rank, sizeof(LoadState), &made.sums_.state));
  return made;
}

Status LoadStatistics::count(const int32_t* num_tokens, const int32_t* experts,
                             const int32_t* slots, int layer) {
  if (layer < 0 || layer >= sums_.num_layers) {
    return invalid_input(
        fmt::format("statistics on GPUs: layer {}, expected 0 to {}", layer, sums_.num_layers - 1));
  }
  return devices_->launch(x_.rank, CountTokens{x_, sums_, num_tokens, experts, slots, layer},
                          {1, num_threads_, CountTokens::shared_bytes(x_.layout.shape())});
}

Status LoadStatistics::end_iteration() {
  return devices_->launch(x_.rank, EndIteration{sums_}, {1, kWarpSize});
}

Result<LoadStatistics::Taken> LoadStatistics::allocate_taken() {
  Taken taken;
  WIDEEP_TRY(allocate_zeros(*devices_, x_.rank, sizeof(TakenLoads), &taken.loads));
  WIDEEP_TRY(allocate_zeros(*devices_, x_.rank, sums_bytes(), &taken.tokens));
  return taken;
}

Status LoadStatistics::take(int stream, const Taken& to) {
  return devices_->launch(stream, TakeLoads{sums_, to.loads, to.tokens}, {1, num_threads_});
}

Result<RankLoads> LoadStatistics::read(int stream, const Taken& taken) {
  TakenLoads header{};
  WIDEEP_TRY(devices_->read(stream, &header, taken.loads, sizeof(header)));
  RankLoads loads;
  loads.num_iterations = static_cast<int64_t>(header.num_iterations);
  if (loads.num_iterations == 0) return loads;
  loads.first_iteration = static_cast<int64_t>(header.first_iteration);
  loads.tokens.resize(static_cast<size_t>(sums_.num_sums()));
  WIDEEP_TRY(devices_->read(stream, loads.tokens.data(), taken.tokens, sums_bytes()));
  return loads;
}

}  // namespace wideep::cuda
