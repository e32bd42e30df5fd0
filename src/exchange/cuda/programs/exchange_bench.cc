// SPDX-License-Identifier: Apache-2.0
//
// Speed of dispatch and combine with several ranks on one GPU:
//
//   cuda_exchange_bench bandwidth   bytes per second of dispatch and combine, beside cudaMemcpy on
//                                   the device with as many bytes, and beside the memory's limit
//   cuda_exchange_bench formats     the same for fp8 and nvfp4, 8 ranks
//   cuda_exchange_bench blocks      the same for other numbers of blocks and threads
//   cuda_exchange_bench latency     a round without tokens, and with few; launches one by one and
//                                   dependent, four kernels and two
//   cuda_exchange_bench copies      copies of experts with content hashes, and rounds beside them
//
// Bytes are those that have to be read and written: a dispatched row is read once and written once
// for each of its ranks, with its lists; a result is read once for each of top_k, the sum written
// once. Everything is timed as graphs of equal steps one after the other, the copies too, so that
// all find the same bytes in the L2 cache.
//
// What one GPU cannot show: links between GPUs. All ranks share one memory and its bandwidth.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/content_hash.h"
#include "base/try.h"
#include "cuda/cuda_devices.h"
#include "cuda/dispatch_combine.h"
#include "cuda/expert_copies.h"

namespace wideep::cuda {
namespace {

constexpr int kExperts = 256;  // as DeepSeek-V3
constexpr int kTopK = 8;
constexpr int kHidden = 7168;
constexpr double kLimitGbs = 3350.0;  // of an H100 SXM's memory, by its data sheet

struct Setting {
  int num_ranks = 8;
  int num_tokens = 64;  // of each rank
  RowFormat row_format = RowFormat::kBf16;
  RowFormat result_format = RowFormat::kBf16;
  int blocks_per_multiprocessor = 2;  // of all ranks together
  int num_threads = 512;
  int blocks_of_rank = 0;  // 0: by blocks_per_multiprocessor
  bool is_dependent = true;
};

Status check(cudaError_t error, const char* what) { return cuda_status(error, what); }

// Microseconds of one of `steps` equal steps that `capture` puts onto the stream: the median of
// some replays of their graph.
Result<double> time_steps(cudaStream_t stream, int steps, const std::function<Status()>& step) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  WIDEEP_TRY(check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture"));
  Status captured;
  for (int i = 0; i < steps && captured.ok(); ++i) captured = step();
  WIDEEP_TRY(check(cudaStreamEndCapture(stream, &graph), "the end of a capture"));
  WIDEEP_TRY(captured);
  WIDEEP_TRY(check(cudaGraphInstantiate(&executable, graph, 0), "a graph"));
  cudaEvent_t begin = nullptr, end = nullptr;
  WIDEEP_TRY(check(cudaEventCreate(&begin), "an event"));
  WIDEEP_TRY(check(cudaEventCreate(&end), "an event"));
  std::vector<double> times;
  for (int replay = 0; replay < 9; ++replay) {
    WIDEEP_TRY(check(cudaEventRecord(begin, stream), "an event"));
    WIDEEP_TRY(check(cudaGraphLaunch(executable, stream), "a graph"));
    WIDEEP_TRY(check(cudaEventRecord(end, stream), "an event"));
    WIDEEP_TRY(check(cudaStreamSynchronize(stream), "a graph's run"));
    float ms = 0.0f;
    WIDEEP_TRY(check(cudaEventElapsedTime(&ms, begin, end), "an event"));
    if (replay >= 2) times.push_back(1000.0 * static_cast<double>(ms) / steps);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// All ranks of a setting, with tokens that are routed at random.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(const Setting& setting, Sharing sharing);

  CudaDevices& devices() { return *devices_; }
  const ExchangeShape& shape() const { return shape_; }
  int blocks_of_rank() const { return options_.num_blocks; }
  double dispatch_bytes() const { return dispatch_bytes_; }
  double combine_bytes() const { return combine_bytes_; }

  Status prepare() {
    return each([&](size_t r) { return ranks_[r].prepare(tokens_[r].num_tokens, experts_[r], 0); });
  }
  Status index() {
    return each([&](size_t r) {
      return launch(r, IndexMessages{ranks_[r].exchange(), tokens_[r], 0},
                    {std::min(shape_.ep_size, options_.num_blocks), options_.num_index_threads,
                     IndexMessages::shared_bytes(shape_, options_.num_index_threads)});
    });
  }
  Status dispatch() {
    return each([&](size_t r) {
      return launch(r, Dispatch{ranks_[r].exchange(), tokens_[r], rows_[r], shape_.row_bytes, 0},
                    {options_.num_blocks, options_.num_threads});
    });
  }
  Status receive() {
    return each([&](size_t r) { return ranks_[r].receive(0); });
  }
  Status combine() {
    return each([&](size_t r) {
      return ranks_[r].combine(tokens_[r],
                               {.result_format = setting_.result_format,
                                .hidden = kHidden,
                                .out = out_[r],
                                .out_stride = kHidden * sizeof(Bf16)},
                               0);
    });
  }
  // Of all received rows, into a matrix of each rank, and back.
  Status allocate_matrices();
  Status expand() {
    return each([&](size_t r) { return ranks_[r].expand(matrices_[r], shape_.row_bytes); });
  }
  Status finalize() {
    return each([&](size_t r) { return ranks_[r].finalize(matrices_[r], shape_.result_bytes); });
  }
  Status round() {
    WIDEEP_TRY(index());
    WIDEEP_TRY(dispatch());
    WIDEEP_TRY(receive());
    return combine();
  }
  Status dispatch_and_receive() {
    return each([&](size_t r) {
      return ranks_[r].dispatch_and_receive(tokens_[r], rows_[r], shape_.row_bytes, 0);
    });
  }
  Status small_round() {
    WIDEEP_TRY(dispatch_and_receive());
    return combine();
  }
  // One rank's round, for ranks in streams of their own.
  Status round_of(size_t r, bool is_small) {
    DispatchCombine& me = ranks_[r];
    if (is_small) {
      WIDEEP_TRY(me.dispatch_and_receive(tokens_[r], rows_[r], shape_.row_bytes, 0));
    } else {
      WIDEEP_TRY(me.dispatch(tokens_[r], rows_[r], shape_.row_bytes, 0));
      WIDEEP_TRY(me.receive(0));
    }
    return me.combine(tokens_[r],
                      {.result_format = setting_.result_format,
                       .hidden = kHidden,
                       .out = out_[r],
                       .out_stride = kHidden * sizeof(Bf16)},
                      0);
  }
  // Writes all results once, so that combine reads numbers.
  Status run_experts();
  Status failure() {
    return each([&](size_t r) { return ranks_[r].failure(); });
  }

 private:
  Status each(const std::function<Status(size_t)>& body) {
    for (size_t r = 0; r < ranks_.size(); ++r) WIDEEP_TRY(body(r));
    return {};
  }
  Status launch(size_t rank, const Kernel& kernel, const LaunchShape& shape) {
    return devices_->launch(static_cast<int>(rank), kernel, shape);
  }
  Status fill_rank(int rank, const std::vector<std::byte>& bytes, std::mt19937& random);

  Setting setting_;
  ExchangeShape shape_;
  DispatchCombineOptions options_;
  std::unique_ptr<CudaDevices> devices_;
  std::vector<DispatchCombine> ranks_;
  std::vector<Tokens> tokens_;
  std::vector<int32_t*> experts_;
  std::vector<std::byte*> rows_;
  std::vector<std::byte*> out_;
  std::vector<std::byte*> matrices_;
  std::vector<size_t> rows_to_;  // [ep_size] that each rank receives
  double dispatch_bytes_ = 0, combine_bytes_ = 0;
};

Result<std::unique_ptr<Bench>> Bench::create(const Setting& setting, Sharing sharing) {
  auto made = std::make_unique<Bench>();
  made->setting_ = setting;
  made->shape_ = {
      .ep_size = setting.num_ranks,
      .num_experts = kExperts,
      .slots_per_rank = kExperts / setting.num_ranks,
      .top_k = kTopK,
      .max_tokens = std::max(1, setting.num_tokens),
      .row_bytes = static_cast<uint32_t>(kernels::row_bytes(setting.row_format, kHidden)),
      .result_bytes = static_cast<uint32_t>(kernels::row_bytes(setting.result_format, kHidden))};
  WIDEEP_TRY_ASSIGN(made->devices_, CudaDevices::create(setting.num_ranks, sharing));
  made->devices_->set_dependent_launches(setting.is_dependent);
  const int blocks = made->devices_->num_multiprocessors() * setting.blocks_per_multiprocessor;
  made->options_ = {.num_blocks = setting.blocks_of_rank > 0
                                      ? setting.blocks_of_rank
                                      : std::max(1, blocks / setting.num_ranks),
                    .num_threads = setting.num_threads,
                    .num_index_threads = std::min(1024, (made->shape_.max_tokens + 31) / 32 * 32),
                    .num_receive_blocks = setting.num_tokens > 256 ? 8 : 1,
                    .small_round_tokens = 8};
  WIDEEP_TRY_ASSIGN(made->ranks_,
                    DispatchCombine::create_all(*made->devices_, made->shape_, made->options_));
  // Numbers as activations are, so that memory and arithmetic see real bits.
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<std::byte> bytes(size_t{1} << 20);
  for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    const uint16_t bits = Bf16(normal(random)).bits;
    std::memcpy(bytes.data() + i, &bits, 2);
  }
  for (int rank = 0; rank < setting.num_ranks; ++rank) {
    WIDEEP_TRY(made->fill_rank(rank, bytes, random));
  }
  return made;
}

Status Bench::fill_rank(int rank, const std::vector<std::byte>& bytes, std::mt19937& random) {
  const auto n = static_cast<size_t>(setting_.num_tokens);
  std::vector<int32_t> slots;
  std::vector<int32_t> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  const double message_bytes = shape_.row_bytes + kTopK * 12.0;
  for (size_t t = 0; t < n; ++t) {
    for (int k = 0; k < kTopK; ++k) {
      std::swap(all[static_cast<size_t>(k)],
                all[k + random() % (kExperts - static_cast<size_t>(k))]);
    }
    slots.insert(slots.end(), all.begin(), all.begin() + kTopK);
    rows_to_.resize(static_cast<size_t>(shape_.ep_size));
    std::vector<char> ranks(static_cast<size_t>(shape_.ep_size));
    for (int k = 0; k < kTopK; ++k) {
      const auto to = static_cast<size_t>(all[static_cast<size_t>(k)] / shape_.slots_per_rank);
      ranks[to] = 1;
      ++rows_to_[to];
    }
    dispatch_bytes_ += shape_.row_bytes;
    dispatch_bytes_ +=
        message_bytes * static_cast<double>(std::count(ranks.begin(), ranks.end(), 1));
    combine_bytes_ += static_cast<double>(kTopK) * shape_.result_bytes + 2.0 * kHidden;
  }
  const std::vector<float> weights(n * kTopK, 1.0f / kTopK);
  const auto upload = [&]<typename T>(const std::vector<T>& values, T** to) -> Status {
    const size_t num_bytes = std::max<size_t>(values.size() * sizeof(T), 16);
    WIDEEP_TRY_ASSIGN(std::byte* const memory, devices_->allocate(rank, num_bytes, false));
    *to = reinterpret_cast<T*>(memory);
    return devices_->write(rank, memory, values.data(), values.size() * sizeof(T));
  };
  int32_t *count = nullptr, *slots_on_device = nullptr;
  float* weights_on_device = nullptr;
  WIDEEP_TRY(upload(std::vector<int32_t>{setting_.num_tokens}, &count));
  WIDEEP_TRY(upload(slots, &slots_on_device));
  WIDEEP_TRY(upload(weights, &weights_on_device));
  tokens_.push_back({count, slots_on_device, weights_on_device});
  experts_.push_back(slots_on_device);  // slot s has expert s
  const size_t row_bytes = std::max<size_t>(n, 1) * shape_.row_bytes;
  WIDEEP_TRY_ASSIGN(std::byte* const rows, devices_->allocate(rank, row_bytes, false));
  for (size_t at = 0; at < row_bytes; at += bytes.size()) {
    WIDEEP_TRY(
        devices_->write(rank, rows + at, bytes.data(), std::min(bytes.size(), row_bytes - at)));
  }
  rows_.push_back(rows);
  WIDEEP_TRY_ASSIGN(std::byte* const out,
                    devices_->allocate(rank, std::max<size_t>(n, 1) * kHidden * 2, false));
  out_.push_back(out);
  return {};
}

Status Bench::allocate_matrices() {
  const size_t stride = std::max(shape_.row_bytes, shape_.result_bytes);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    WIDEEP_TRY_ASSIGN(std::byte* const matrix,
                      devices_->allocate(static_cast<int>(r), (rows_to_[r] + 1) * stride, false));
    matrices_.push_back(matrix);
  }
  return {};
}

Status Bench::run_experts() {
  std::vector<int32_t> experts(static_cast<size_t>(shape_.slots_per_rank));
  std::vector<int32_t*> on_device(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    std::iota(experts.begin(), experts.end(), static_cast<int>(r) * shape_.slots_per_rank);
    WIDEEP_TRY_ASSIGN(std::byte* const memory,
                      devices_->allocate(static_cast<int>(r), experts.size() * 4, false));
    on_device[r] = reinterpret_cast<int32_t*>(memory);
    WIDEEP_TRY(devices_->write(static_cast<int>(r), memory, experts.data(), experts.size() * 4));
  }
  return each([&](size_t r) {
    return launch(r,
                  EchoExperts{ranks_[r].exchange(), ranks_[r].received_rows(),
                              ranks_[r].slot_starts(), on_device[r], nullptr, nullptr, 0,
                              setting_.row_format, setting_.result_format, kHidden},
                  {options_.num_blocks, options_.num_threads});
  });
}

// Microseconds of a copy on the device that reads and writes num_bytes in all.
Result<double> time_copy(CudaDevices& devices, double num_bytes, int steps) {
  const auto half = std::max<size_t>(16, static_cast<size_t>(num_bytes / 2));
  WIDEEP_TRY_ASSIGN(std::byte* const from, devices.allocate(0, half, false));
  WIDEEP_TRY_ASSIGN(std::byte* const to, devices.allocate(0, half, false));
  const cudaStream_t stream = devices.stream(0);
  return time_steps(stream, steps, [&] {
    return check(cudaMemcpyAsync(to, from, half, cudaMemcpyDeviceToDevice, stream), "a copy");
  });
}

void print_header() {
  fmt::print(
      "ranks tokens rows   results blocks threads |  index |  dispatch      GB/s    copy  ratio  "
      "limit | receive |   combine      GB/s    copy  ratio  limit |  expand finalize\n");
}

Status measure(const Setting& setting) {
  WIDEEP_TRY_ASSIGN(const auto bench, Bench::create(setting, Sharing::kOneLaunch));
  CudaDevices& devices = bench->devices();
  const cudaStream_t stream = devices.stream(0);
  // A whole round first: later steps find what they need.
  WIDEEP_TRY(bench->index());
  WIDEEP_TRY(bench->dispatch());
  WIDEEP_TRY(bench->receive());
  WIDEEP_TRY(bench->run_experts());
  WIDEEP_TRY(bench->combine());
  WIDEEP_TRY(devices.finish());
  WIDEEP_TRY(bench->failure());
  const int steps = setting.num_tokens >= 1024 ? 5 : 20;
  WIDEEP_TRY_ASSIGN(const double index, time_steps(stream, steps, [&] { return bench->index(); }));
  WIDEEP_TRY_ASSIGN(const double dispatch,
                    time_steps(stream, steps, [&] { return bench->dispatch(); }));
  WIDEEP_TRY_ASSIGN(const double receive,
                    time_steps(stream, steps, [&] { return bench->receive(); }));
  WIDEEP_TRY_ASSIGN(const double combine,
                    time_steps(stream, steps, [&] { return bench->combine(); }));
  WIDEEP_TRY(bench->allocate_matrices());
  WIDEEP_TRY_ASSIGN(const double expand,
                    time_steps(stream, steps, [&] { return bench->expand(); }));
  WIDEEP_TRY_ASSIGN(const double finalize,
                    time_steps(stream, steps, [&] { return bench->finalize(); }));
  WIDEEP_TRY(bench->failure());
  WIDEEP_TRY_ASSIGN(const double dispatch_copy, time_copy(devices, bench->dispatch_bytes(), steps));
  WIDEEP_TRY_ASSIGN(const double combine_copy, time_copy(devices, bench->combine_bytes(), steps));
  const auto gbs = [](double bytes, double us) { return bytes / us / 1000.0; };
  const auto columns = [&](double us, double bytes, double copy_us) {
    const double speed = gbs(bytes, us);
    return fmt::format("{:8.1f}us {:9.0f} {:7.0f} {:6.2f} {:6.2f}", us, speed, gbs(bytes, copy_us),
                       copy_us / us, speed / kLimitGbs);
  };
  fmt::print(
      "{:5} {:6} {:6} {:7} {:6} {:7} | {:4.1f}us | {} | {:5.1f}us | {} | {:7.1f}us {:7.1f}us\n",
      setting.num_ranks, setting.num_tokens, kernels::row_format_name(setting.row_format),
      kernels::row_format_name(setting.result_format), setting.blocks_per_multiprocessor,
      setting.num_threads, index, columns(dispatch, bench->dispatch_bytes(), dispatch_copy),
      receive, columns(combine, bench->combine_bytes(), combine_copy), expand, finalize);
  std::fflush(stdout);
  return {};
}

// The first error ends its line only.
void measure_all(const std::vector<Setting>& settings) {
  print_header();
  for (const Setting& setting : settings) {
    const Status status = measure(setting);
    if (!status.ok()) {
      fmt::print("{} ranks, {} tokens: {}\n", setting.num_ranks, setting.num_tokens,
                 status.message());
    }
  }
}

void bandwidth() {
  std::vector<Setting> settings;
  for (const int ranks : {8, 4, 2}) {
    for (const int tokens : {1, 16, 64, 256, 1024, 4096}) {
      settings.push_back({.num_ranks = ranks, .num_tokens = tokens});
    }
  }
  measure_all(settings);
}

void formats() {
  std::vector<Setting> settings;
  for (const auto& [row, result] :
       {std::pair(RowFormat::kFp8, RowFormat::kBf16), std::pair(RowFormat::kFp8, RowFormat::kFp8),
        std::pair(RowFormat::kNvfp4, RowFormat::kNvfp4)}) {
    for (const int tokens : {64, 1024, 4096}) {
      settings.push_back({.num_tokens = tokens, .row_format = row, .result_format = result});
    }
  }
  measure_all(settings);
}

void blocks() {
  std::vector<Setting> settings;
  for (const int tokens : {64, 1024}) {
    for (const int per_multiprocessor : {1, 2, 4}) {
      for (const int threads : {256, 512}) {
        if (per_multiprocessor * threads > 1024) continue;
        settings.push_back({.num_tokens = tokens,
                            .blocks_per_multiprocessor = per_multiprocessor,
                            .num_threads = threads});
      }
    }
  }
  measure_all(settings);
}

// Rounds of ranks that each have a stream and a graph of their own, by the host's clock.
Result<double> time_streams(Setting setting, bool is_small) {
  constexpr int kRounds = 200;
  const int num_ranks = setting.num_ranks;
  setting.num_threads = 256;  // room for two kernels of every rank
  setting.blocks_per_multiprocessor = 1;
  WIDEEP_TRY_ASSIGN(const auto bench, Bench::create(setting, Sharing::kStreams));
  CudaDevices& devices = bench->devices();
  std::vector<cudaGraphExec_t> graphs;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const cudaStream_t stream = devices.stream(rank);
    cudaGraph_t graph = nullptr;
    WIDEEP_TRY(check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture"));
    for (int i = 0; i < kRounds; ++i)
      WIDEEP_TRY(bench->round_of(static_cast<size_t>(rank), is_small));
    WIDEEP_TRY(check(cudaStreamEndCapture(stream, &graph), "the end of a capture"));
    WIDEEP_TRY(check(cudaGraphInstantiate(&graphs.emplace_back(), graph, 0), "a graph"));
    WIDEEP_TRY(check(cudaGraphUpload(graphs.back(), stream), "a graph"));
    cudaGraphDestroy(graph);
  }
  WIDEEP_TRY(devices.finish());
  double best = 0;
  for (int replay = 0; replay < 5; ++replay) {
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 0; rank < num_ranks; ++rank) {
      WIDEEP_TRY(check(cudaGraphLaunch(graphs[static_cast<size_t>(rank)], devices.stream(rank)),
                       "a graph"));
    }
    WIDEEP_TRY(devices.finish());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    const double us = took.count() / kRounds;
    best = replay == 0 ? us : std::min(best, us);
  }
  for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
  WIDEEP_TRY(bench->failure());
  return best;
}

// One line: kernels one by one, whole rounds of four kernels and of two, in one launch and in
// streams.
Status measure_latency(const Setting& setting) {
  WIDEEP_TRY_ASSIGN(const auto bench, Bench::create(setting, Sharing::kOneLaunch));
  const cudaStream_t stream = bench->devices().stream(0);
  const auto time = [&](Status (Bench::*step)()) {
    return time_steps(stream, 20, [&] { return (*bench.*step)(); });
  };
  WIDEEP_TRY(bench->round());
  WIDEEP_TRY(bench->devices().finish());
  WIDEEP_TRY_ASSIGN(const double prepare, time(&Bench::prepare));
  WIDEEP_TRY_ASSIGN(const double index, time(&Bench::index));
  WIDEEP_TRY_ASSIGN(const double dispatch, time(&Bench::dispatch));
  WIDEEP_TRY_ASSIGN(const double receive, time(&Bench::receive));
  WIDEEP_TRY_ASSIGN(const double small, time(&Bench::dispatch_and_receive));
  WIDEEP_TRY_ASSIGN(const double combine, time(&Bench::combine));
  WIDEEP_TRY_ASSIGN(const double round, time(&Bench::round));
  WIDEEP_TRY_ASSIGN(const double small_round, time(&Bench::small_round));
  WIDEEP_TRY(bench->failure());
  fmt::print(
      "{:5} {:6} {:6} {:7} {:>10} | {:7.1f} {:5.1f} {:8.1f} {:7.1f} {:9.1f} {:7.1f} | {:6.1f} "
      "{:6.1f}",
      setting.num_ranks, setting.num_tokens, bench->blocks_of_rank(), setting.num_threads,
      setting.is_dependent ? "dependent" : "one by one", prepare, index, dispatch, receive, small,
      combine, round, small_round);
  std::fflush(stdout);
  for (const bool is_small : {false, true}) {
    WIDEEP_TRY_ASSIGN(const double streams, time_streams(setting, is_small));
    fmt::print(" {:7.1f}", streams);
  }
  fmt::print("\n");
  return {};
}

void latency() {
  fmt::print(
      "µs. small: index, dispatch and receive in one kernel.      |                               "
      "                    | all ranks in one launch | in streams\n"
      "ranks tokens blocks threads launches   | prepare index dispatch receive     small combine |"
      "  round  small   round   small\n");
  for (const int ranks : {1, 8}) {
    for (const int tokens : {0, 1, 8}) {
      for (const auto& [blocks, threads] : {std::pair(0, 512), std::pair(8, 256)}) {
        for (const bool is_dependent : {false, true}) {
          const Status status = measure_latency({.num_ranks = ranks,
                                                 .num_tokens = tokens,
                                                 .num_threads = threads,
                                                 .blocks_of_rank = blocks,
                                                 .is_dependent = is_dependent});
          if (!status.ok()) {
            fmt::print("\n{} ranks, {} tokens: {}\n", ranks, tokens, status.message());
          }
          std::fflush(stdout);
        }
      }
    }
  }
}

// ---- copies of experts ----

constexpr size_t kRecordBytes = size_t{3} * kHidden * 2048;  // of DeepSeek-V3 in fp8

// Copies of one record to many places.
class CopyBench {
 public:
  static Result<CopyBench> create(CudaDevices& devices, int num_records,
                                  const ExpertCopyOptions& options) {
    CopyBench made(devices);
    WIDEEP_TRY_ASSIGN(made.stream_, devices.add_background_stream());
    std::vector<std::byte> bytes(kRecordBytes);
    std::mt19937 random(3);
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const auto word = static_cast<uint32_t>(random());
      std::memcpy(bytes.data() + i, &word, 4);
    }
    WIDEEP_TRY_ASSIGN(std::byte* const from, devices.allocate(made.stream_, kRecordBytes, true));
    WIDEEP_TRY(devices.write(made.stream_, from, bytes.data(), bytes.size()));
    const uint64_t hash = base::content_hash(bytes.data(), bytes.size());
    for (int i = 0; i < num_records; ++i) {
      WIDEEP_TRY_ASSIGN(std::byte* const to, devices.allocate(made.stream_, kRecordBytes, true));
      made.copies_.push_back(
          {.from = from, .to = to, .num_bytes = kRecordBytes, .expected_hash = hash, .expert = i});
    }
    WIDEEP_TRY_ASSIGN(ExpertCopies mover, ExpertCopies::create(devices, made.stream_, options));
    made.mover_.push_back(std::move(mover));
    return made;
  }

  cudaStream_t stream() const { return devices_->stream(stream_); }
  // Does not wait for the copies. Returns the number of launches.
  Result<int> launch_all() {
    WIDEEP_TRY(mover_[0].begin(copies_));
    const int pieces = mover_[0].pieces_left();
    while (!mover_[0].are_ended()) WIDEEP_TRY(mover_[0].launch_piece());
    return pieces;
  }
  // After the stream's end.
  Status check_all() {
    WIDEEP_TRY_ASSIGN(const std::vector<CopyOutcome> outcomes, mover_[0].outcomes());
    for (size_t i = 0; i < outcomes.size(); ++i) {
      WIDEEP_TRY(copy_status(0, copies_[i], outcomes[i]));
    }
    return {};
  }

 private:
  explicit CopyBench(CudaDevices& devices) : devices_(&devices) {}

  CudaDevices* devices_;
  int stream_ = 0;
  std::vector<RecordCopy> copies_;
  std::vector<ExpertCopies> mover_;  // one
};

// Seconds by the host's clock until the work that `launch` puts onto the stream has ended.
Result<double> time_work(cudaStream_t stream, const std::function<Status()>& launch) {
  const auto begin = std::chrono::steady_clock::now();
  WIDEEP_TRY(launch());
  WIDEEP_TRY(check(cudaStreamSynchronize(stream), "the background's end"));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count();
}

Status measure_copies(int num_records, const ExpertCopyOptions& options) {
  WIDEEP_TRY_ASSIGN(const auto devices, CudaDevices::create(1, Sharing::kStreams));
  WIDEEP_TRY_ASSIGN(CopyBench bench, CopyBench::create(*devices, num_records, options));
  double best = 0;
  int launches = 0;
  for (int i = 0; i < 3; ++i) {
    WIDEEP_TRY_ASSIGN(const double seconds, time_work(bench.stream(), [&]() -> Status {
                        WIDEEP_TRY_ASSIGN(launches, bench.launch_all());
                        return {};
                      }));
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  WIDEEP_TRY(bench.check_all());
  const double bytes = static_cast<double>(num_records) * static_cast<double>(kRecordBytes);
  fmt::print("{:7} {:6} {:8} KiB | {:8.2f} ms {:7.1f} GB/s copied {:8.1f} us a launch\n",
             num_records, options.num_blocks, options.piece_bytes / 1024, 1000.0 * best,
             bytes / best / 1e9, 1e6 * best / launches);
  std::fflush(stdout);
  return {};
}

// Rounds while experts are copied, and how much slower they are than alone.
Status measure_beside(int num_blocks) {
  const Setting setting{.num_tokens = 64, .blocks_per_multiprocessor = 1};
  WIDEEP_TRY_ASSIGN(const auto bench, Bench::create(setting, Sharing::kOneLaunch));
  CudaDevices& devices = bench->devices();
  WIDEEP_TRY(bench->round());
  WIDEEP_TRY(devices.finish());
  const cudaStream_t stream = devices.stream(0);
  WIDEEP_TRY_ASSIGN(const double alone, time_steps(stream, 20, [&] { return bench->round(); }));
  WIDEEP_TRY_ASSIGN(CopyBench copies, CopyBench::create(devices, 64, {.num_blocks = num_blocks}));
  WIDEEP_TRY(copies.launch_all().status());
  WIDEEP_TRY_ASSIGN(const double beside, time_steps(stream, 20, [&] { return bench->round(); }));
  const bool are_under_way = cudaStreamQuery(copies.stream()) == cudaErrorNotReady;
  WIDEEP_TRY(devices.finish());
  WIDEEP_TRY(copies.check_all());
  WIDEEP_TRY(bench->failure());
  fmt::print("8 ranks, 64 tokens: a round {:.1f} us alone, {:.1f} us while {} blocks copy{}\n",
             alone, beside, num_blocks,
             are_under_way ? "" : " (the copies ended before the rounds did)");
  std::fflush(stdout);
  return {};
}

void copies() {
  fmt::print("records of {} bytes\nrecords blocks     piece |\n", kRecordBytes);
  const auto show = [](const Status& status) {
    if (!status.ok()) fmt::print("{}\n", status.message());
  };
  for (const int records : {1, 8, 32}) {
    for (const int blocks : {4, 16}) {
      for (const size_t piece : {size_t{1} << 18, size_t{1} << 20, size_t{1} << 22}) {
        show(measure_copies(records, {.piece_bytes = piece, .num_blocks = blocks}));
      }
    }
  }
  for (const int blocks : {4, 16}) show(measure_beside(blocks));
}

Status describe_device() {
  WIDEEP_TRY_ASSIGN(const auto devices, CudaDevices::create(1, Sharing::kStreams));
  fmt::print("{}, {} multiprocessors\n", devices->name(), devices->num_multiprocessors());
  std::vector<KernelResources> kernels;
  WIDEEP_TRY(check(kernel_resources(512, &kernels), "the kernels' resources"));
  for (const KernelResources& kernel : kernels) {
    fmt::print("  {:14} {:3} registers, {} bytes spilled, {} blocks of {} threads\n", kernel.name,
               kernel.registers, kernel.local_bytes, kernel.blocks, kernel.threads);
  }
  return {};
}

}  // namespace
}  // namespace wideep::cuda

int main(int argc, char** argv) {
  using namespace wideep::cuda;
  const std::string what = argc > 1 ? argv[1] : "";
  const std::vector<std::pair<std::string, void (*)()>> parts = {{"bandwidth", bandwidth},
                                                                 {"formats", formats},
                                                                 {"blocks", blocks},
                                                                 {"latency", latency},
                                                                 {"copies", copies}};
  const auto part =
      std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p.first == what; });
  if (part == parts.end()) {
    fmt::print(stderr, "cuda_exchange_bench bandwidth | formats | blocks | latency | copies\n");
    return 2;
  }
  const wideep::Status status = describe_device();
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.message());
    return status.exit_code();
  }
  part->second();
  return 0;
}
