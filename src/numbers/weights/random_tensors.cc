// SPDX-License-Identifier: Apache-2.0
#include "weights/random_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <thread>

namespace wideep::weights {
namespace {

constexpr size_t kOffsets = size_t{1} << 20;  // number of offsets at which a window may begin

// SplitMix64 (Steele, Lea and Flood 2014): a well-mixed function of a counter.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash(uint64_t seed, const std::string& name) {
  uint64_t state = mix(seed);
  for (const char c : name) state = mix(state ^ static_cast<unsigned char>(c));
  return state;
}

// About normal with mean 0 and deviation 1: the sum of four uniform numbers, which is cheap to
// compute.
float nearly_normal(uint64_t bits) {
  uint32_t sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<uint16_t>(bits >> (16 * part));
  constexpr float kMean = 4 * 32767.5f, kDeviation = 65536.0f * 0.57735027f;  // √(4 / 12)
  return (static_cast<float>(sum) - kMean) / kDeviation;
}

// Calls body(begin, end) on all cores. Its threads end before it returns, so that the caller may
// fork (a ThreadPool would keep its threads).
template <typename Body>
void in_parallel(size_t count, const Body& body) {
  constexpr size_t kSmallest = size_t{1}
                               << 20;  // for fewer values a thread costs more than it saves
  const size_t threads =
      std::clamp<size_t>(std::thread::hardware_concurrency(), 1, count / kSmallest + 1);
  std::vector<std::thread> workers;
  for (size_t i = 1; i < threads; ++i) {
    workers.emplace_back(
        [&body, i, count, threads] { body(count * i / threads, count * (i + 1) / threads); });
  }
  body(0, count / threads);
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

RandomTensors::Scale RandomTensors::scale_of(const std::string& name,
                                             const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return name.ends_with("bias") ? Scale{0.2f, 0.05f} : Scale{1.0f, 0.1f};
  if (name.ends_with("embed_tokens.weight")) return {0.0f, 1.0f};
  const float gain = name.ends_with(".gate.weight") ? 2.0f : 1.0f;
  return {0.0f, gain / std::sqrt(static_cast<float>(shape.back()))};
}

// Value i depends on seed, scale and i only, not on the length of the array.
const std::vector<Bf16>& RandomTensors::values(const Scale& scale, size_t count) const {
  std::deque<std::vector<Bf16>>& runs = runs_[scale];
  if (runs.empty() || runs.back().size() < count) {
    const uint64_t start = mix(seed_ ^ std::bit_cast<uint32_t>(scale.deviation));
    std::vector<Bf16>& run = runs.emplace_back(count);
    in_parallel(count, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        run[i] = Bf16(scale.mean + scale.deviation * nearly_normal(mix(start + i)));
      }
    });
  }
  return runs.back();
}

Result<const tensor_files::TensorEntry*> RandomTensors::tensor(
    const std::string& name, const std::vector<int64_t>& shape) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, is_new] = entries_.try_emplace({name, shape});
  tensor_files::TensorEntry& entry = found->second;
  if (is_new) {
    entry.dtype = Dtype::kBf16;
    entry.shape = shape;
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    const std::vector<Bf16>& run = values(scale_of(name, shape), count + kOffsets);
    entry.bytes = std::as_bytes(std::span(run).subspan(hash(seed_, name) % kOffsets, count));
  }
  return &entry;
}

Result<const tensor_files::TensorEntry*> RandomTensors::tensor(
    const std::string& name, const std::vector<int64_t>& shape,
    std::span<const Dtype> dtypes) const {
  if (std::ranges::find(dtypes, Dtype::kI64) == dtypes.end()) return tensor(name, shape);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, is_new] = entries_.try_emplace({name, shape});
  tensor_files::TensorEntry& entry = found->second;
  if (is_new) {
    entry.dtype = Dtype::kI64;
    entry.shape = shape;
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    std::vector<int64_t>& values = integers_.emplace_back(count);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int64_t>(i) % shape.back();
    }
    entry.bytes = std::as_bytes(std::span(values));
  }
  return &entry;
}

std::string RandomTensors::fingerprint() const { return fmt::format("random, seed {}", seed_); }

}  // namespace wideep::weights
