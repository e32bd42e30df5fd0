// SPDX-License-Identifier: Apache-2.0
//
// Memory that a process has just freed is faster to get than other memory: so each measurement has
// a process of its own, and their order changes with the round. The limits are what no loader
// avoids: to read every byte from the page cache, and to touch every page of the packed weights
// once. A child answers with one write, small enough for a pipe to take it whole, and leaves by
// _exit.
#include "measure/model/bench_load.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>

#include "base/machine.h"
#include "base/try.h"
#include "model/model.h"
#include "model/model_division.h"
#include "model/model_files.h"
#include "run/memory_plan.h"
#include "tensor_files/gguf.h"
#include "weights/checkpoint.h"

namespace wideep::measure {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChunkBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;

balance::ModelPlacement every_expert_once(const model::ModelConfig& config) {
  balance::ModelPlacement placement;
  for (const int layer : model::moe_layers(config)) {
    placement.layers[layer] = *balance::linear_placement(config.routing.num_experts, 1);
  }
  return placement;
}

// Loads each matrix as stored, floats in bf16.
weights::WeightLoader loader_of(const model::ModelFiles& files, base::ThreadPool* pool) {
  return {files.tensors(), {}, [](uint64_t) {}, pool};
}

Result<uint64_t> packed_bytes(const LoadBenchOptions& options) {
  WIDEEP_TRY_ASSIGN(const auto files, model::ModelFiles::reopen(options.model_dir, options.config));
  const run::MemoryPlan plan = run::plan_memory(
      options.config,
      run::dispatch_shape(options.config,
                          {.num_slots = options.config.routing.num_experts, .max_num_tokens = 1},
                          kernels::WeightFormat::kBf16),
      model::model_forms(options.config, loader_of(files, nullptr)), Dtype::kBf16);
  return plan.dense_weights + plan.slots_per_rank;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Cuts memory into chunks, which the threads share out among them.
template <typename Byte>
void cut(std::span<Byte> bytes, std::vector<std::span<Byte>>* chunks) {
  for (size_t begin = 0; begin < bytes.size(); begin += kChunkBytes) {
    chunks->push_back(bytes.subspan(begin, std::min(kChunkBytes, bytes.size() - begin)));
  }
}

// Runs body(chunk) for each chunk on all threads; returns the seconds.
template <typename Byte, typename Body>
double time_chunks(base::ThreadPool& pool, const std::vector<std::span<Byte>>& chunks, Body body) {
  const auto start = Clock::now();
  pool.parallel_for(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(chunks[static_cast<size_t>(i)]);
  });
  return seconds_since(start);
}

uint64_t sum_words(std::span<const std::byte> bytes) {
  uint64_t sum = 0, word = 0;
  for (size_t i = 0; i + sizeof(word) <= bytes.size(); i += sizeof(word)) {
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    sum += word;
  }
  return sum;
}

Result<std::vector<tensor_files::SafetensorsFile>> open_files(const std::string& model_dir) {
  std::vector<tensor_files::SafetensorsFile> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(model_dir, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    WIDEEP_TRY_ASSIGN(tensor_files::SafetensorsFile file,
                      tensor_files::SafetensorsFile::open(entry.path().string()));
    files.push_back(std::move(file));
  }
  return files;
}

// The tensors' bytes, in files that stay open.
struct TensorBytes {
  std::vector<tensor_files::SafetensorsFile> safetensors;
  std::optional<tensor_files::GgufFiles> gguf;
  std::vector<std::span<const std::byte>> spans;

  uint64_t total() const {
    uint64_t bytes = 0;
    for (const auto& span : spans) bytes += span.size();
    return bytes;
  }
};

Result<TensorBytes> tensor_bytes(const std::string& model_dir) {
  TensorBytes bytes;
  if (tensor_files::is_gguf(model_dir)) {
    WIDEEP_TRY_ASSIGN(bytes.gguf, tensor_files::GgufFiles::open(model_dir));
    for (const tensor_files::GgufFile& file : bytes.gguf->files()) {
      for (const auto& [name, tensor] : file.tensors()) bytes.spans.push_back(tensor.bytes);
    }
    return bytes;
  }
  WIDEEP_TRY_ASSIGN(bytes.safetensors, open_files(model_dir));
  for (const auto& file : bytes.safetensors) {
    for (const auto& [name, entry] : file.tensors()) bytes.spans.push_back(entry.bytes);
  }
  return bytes;
}

Result<double> measure_read(const LoadBenchOptions& options, base::ThreadPool& pool) {
  WIDEEP_TRY_ASSIGN(const TensorBytes bytes, tensor_bytes(options.model_dir));
  std::vector<std::span<const std::byte>> chunks;
  for (const auto& span : bytes.spans) cut(span, &chunks);
  // Tensors are listed by name; in the order of addresses, threads read each file front to back.
  std::sort(chunks.begin(), chunks.end(),
            [](const auto& a, const auto& b) { return a.data() < b.data(); });
  std::atomic<uint64_t> sum{0};  // keeps the compiler from removing the reads
  return time_chunks(pool, chunks,
                     [&](std::span<const std::byte> chunk) { sum += sum_words(chunk); });
}

Result<double> measure_touch(const LoadBenchOptions& options, base::ThreadPool& pool) {
  WIDEEP_TRY_ASSIGN(const uint64_t size, packed_bytes(options));
  base::AlignedBytes memory(size);
  std::vector<std::span<std::byte>> chunks;
  cut(std::span(memory.data(), memory.size()), &chunks);
  return time_chunks(pool, chunks, [](std::span<std::byte> chunk) {
    for (size_t i = 0; i < chunk.size(); i += kPageBytes) chunk[i] = std::byte{1};
  });
}

Result<double> measure_load(const LoadBenchOptions& options, base::ThreadPool& pool) {
  const auto placement = every_expert_once(options.config);
  const auto start = Clock::now();
  WIDEEP_TRY_ASSIGN(const auto files, model::ModelFiles::reopen(options.model_dir, options.config));
  const weights::WeightLoader loader = loader_of(files, &pool);
  WIDEEP_TRY_ASSIGN(const auto dense, model::ModelWeights::load(options.config, loader));
  WIDEEP_TRY_ASSIGN(const auto slots,
                    model::ExpertSlots::load(options.config, loader, placement, 0));
  return seconds_since(start);
}

using Measure = Result<double> (*)(const LoadBenchOptions&, base::ThreadPool&);

// What a measuring process writes into the pipe: seconds, or an error. Plain bytes of fixed size,
// at most PIPE_BUF, so that one read gets all of it.
struct Answer {
  double seconds = 0.0;
  std::array<char, 500> error{};
};

Answer answer(Measure measure, const LoadBenchOptions& options) {
  base::ThreadPool pool(options.threads);
  const Result<double> seconds = measure(options, pool);
  if (seconds.ok()) return {*seconds, {}};
  Answer failure;
  seconds.status().message().copy(failure.error.data(), failure.error.size() - 1);
  return failure;
}

// A signal that the caller handles interrupts a wait for the child; it has not died of that.
template <typename Call>
auto without_interruption(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// The child exits with _exit: it must not flush the parent's buffers or run its destructors.
Result<double> measure_in_child(Measure measure, const LoadBenchOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) return failed(fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t child = ::fork();
  if (child < 0) return failed(fmt::format("fork: {}", std::strerror(errno)));
  Answer result;
  if (child == 0) {
    result = answer(measure, options);
    ::_exit(::write(ends[1], &result, sizeof(result)) == sizeof(result) ? 0 : 1);
  }
  ::close(ends[1]);
  const ssize_t length =
      without_interruption([&] { return ::read(ends[0], &result, sizeof(result)); });
  const bool answered = length == sizeof(result);
  ::close(ends[0]);
  without_interruption([&] { return ::waitpid(child, nullptr, 0); });
  if (!answered)
    return failed(
        "a measuring process died; check that the memory is large enough for the whole model");
  if (result.error[0] != 0) return invalid_input(result.error.data());
  return result.seconds;
}

Result<LoadRound> run_round(const LoadBenchOptions& options, int index) {
  struct Figure {
    Measure measure;
    double LoadRound::* seconds;
  };
  std::array<Figure, 3> figures = {{{measure_read, &LoadRound::read},
                                    {measure_touch, &LoadRound::touch},
                                    {measure_load, &LoadRound::load}}};
  std::rotate(figures.begin(), figures.begin() + index % 3, figures.end());
  LoadRound round;
  for (const auto& [measure, seconds] : figures) {
    WIDEEP_TRY_ASSIGN(round.*seconds, measure_in_child(measure, options));
  }
  return round;
}

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double LoadRound::ratio() const { return load / std::max(read, touch); }

LoadRound LoadBenchReport::median() const {
  const auto median_seconds = [&](double LoadRound::* seconds) {
    std::vector<double> values;
    for (const LoadRound& round : rounds) values.push_back(round.*seconds);
    return middle_of(values);
  };
  return {median_seconds(&LoadRound::read), median_seconds(&LoadRound::touch),
          median_seconds(&LoadRound::load)};
}

double LoadBenchReport::median_ratio() const {
  std::vector<double> ratios;
  for (const LoadRound& round : rounds) ratios.push_back(round.ratio());
  return middle_of(ratios);
}

Result<LoadBenchReport> run_load_bench(const LoadBenchOptions& given,
                                       const std::function<void()>& on_round) {
  LoadBenchOptions options = given;
  if (options.threads == 0) options.threads = base::read_machine().usable_cores();
  LoadBenchReport report{.threads = options.threads};
  WIDEEP_TRY_ASSIGN(report.packed_bytes, packed_bytes(options));
  if (tensor_files::is_gguf(options.model_dir)) {
    WIDEEP_TRY_ASSIGN(const TensorBytes bytes, tensor_bytes(options.model_dir));
    report.file_bytes = bytes.total();
  } else {
    WIDEEP_TRY_ASSIGN(const auto checkpoint, weights::Checkpoint::open(options.model_dir));
    report.file_bytes = checkpoint.total_bytes();
  }
  // Brings the checkpoint into the page cache; not a measurement.
  WIDEEP_TRY(measure_in_child(measure_read, options).status());
  for (int i = 0; i < options.rounds; ++i) {
    WIDEEP_TRY_ASSIGN(const LoadRound round, run_round(options, i));
    report.rounds.push_back(round);
    if (on_round) on_round();
  }
  return report;
}

}  // namespace wideep::measure
