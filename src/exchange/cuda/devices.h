// SPDX-License-Identifier: Apache-2.0
//
// Where kernels run: GPUs, or the emulator. One place for each rank of this process: its memory and
// its stream.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <variant>

#include "cuda/choose_by_counts.h"
#include "cuda/choose_slots.h"
#include "cuda/combine.h"
#include "cuda/copy_records.h"
#include "cuda/dispatch.h"
#include "cuda/echo_experts.h"
#include "cuda/expand_rows.h"
#include "cuda/index_messages.h"
#include "cuda/load_counts.h"
#include "cuda/prepare.h"
#include "cuda/receive.h"
#include "cuda/reduce_results.h"
#include "cuda/small_round.h"
#include "wideep/status.h"

namespace wideep::cuda {

using Kernel =
    std::variant<Prepare, ChooseSlots, IndexMessages, Dispatch, Receive, Expand, Finalize,
                 EchoExperts, Combine<RowFormat::kF32>, Combine<RowFormat::kBf16>,
                 Combine<RowFormat::kFp8>, Combine<RowFormat::kNvfp4>, SmallRound, CopyRecords,
                 OfferRecords, CountTokens, EndIteration, TakeLoads, ChooseByCounts,
                 ReduceResults<RowFormat::kF32>, ReduceResults<RowFormat::kBf16>,
                 ReduceResults<RowFormat::kFp8>, ReduceResults<RowFormat::kNvfp4>,
                 CombineReduced<RowFormat::kF32>, CombineReduced<RowFormat::kBf16>,
                 CombineReduced<RowFormat::kFp8>, CombineReduced<RowFormat::kNvfp4>>;

// The most threads of a block: of prepare and index, and of the others, whose threads need more
// registers.
inline constexpr int kMaxIndexThreads = 1024;
inline constexpr int kMaxThreads = 512;
// What every block may use without being asked for.
inline constexpr size_t kMaxSharedBytes = size_t{48} << 10;

struct LaunchShape {
  int num_blocks = 1;
  int num_threads = kWarpSize;  // of a block; a multiple of 32
  size_t shared_bytes = kControlBytes;
};

// "dispatch", …
const char* kernel_name(const Kernel& kernel);

class Devices {
 public:
  virtual ~Devices() = default;

  // Memory of a rank's device, 256-byte aligned, freed with the devices. symmetric: other ranks'
  // devices access it, too. Errors (failed): not enough memory.
  virtual Result<std::byte*> allocate(int rank, size_t num_bytes, bool symmetric) = 0;

  // From and to the host's memory, in the order of the rank's stream; they return when it is
  // done.
  virtual Status write(int rank, void* to, const void* from, size_t num_bytes) = 0;
  virtual Status read(int rank, void* to, const void* from, size_t num_bytes) = 0;
  virtual Status clear(int rank, void* at, size_t num_bytes) = 0;  // zeros

  // Appends to the rank's stream. Does not wait.
  virtual Status launch(int rank, const Kernel& kernel, const LaunchShape& shape) = 0;
  // Waits until all streams are empty. Errors (failed): what a kernel did wrong.
  virtual Status finish() = 0;

  // The same memory may be given to others: what was in it does not count as written any more.
  // The emulator knows of every byte whether it is written; on a GPU one of them is enough,
  // because what was not written is only told by its value.
  virtual void forget(const void* at, size_t num_bytes) = 0;
  virtual bool is_written(const void* at, size_t num_bytes) const = 0;
};

// [count] values of a rank's device, for it alone.
template <typename T>
Status allocate_array(Devices& devices, int rank, size_t count, T** to) {
  const Result<std::byte*> memory = devices.allocate(rank, count * sizeof(T), false);
  if (!memory.ok()) return memory.status();
  *to = reinterpret_cast<T*>(*memory);
  return {};
}

}  // namespace wideep::cuda
