// SPDX-License-Identifier: Apache-2.0
#include "measure/bench_rank.h"

#include <fmt/format.h>

#include <optional>

#include "base/cpu_time.h"
#include "base/log.h"
#include "base/try.h"
#include "engine/wire.h"

namespace wideep::measure {
namespace {

using engine::WireReader;
using engine::WireWriter;

enum class MessageKind : uint8_t { kLoaded, kLimits, kQuickLimits, kRun };

std::string message_of(MessageKind kind, std::string body) {
  return static_cast<char>(kind) + std::move(body);
}

template <typename T>
Status tell(const transport::MessagePipe& pipe, MessageKind kind, const T& value) {
  WireWriter writer;
  writer.put(value);
  return pipe.send(message_of(kind, writer.take()));
}

std::string encode(const RankRun& run) {
  WireWriter writer;
  writer.put(run.start_ns);
  writer.put(static_cast<uint32_t>(run.iterations.size()));
  for (const RankRun::Iteration& iteration : run.iterations) {
    writer.put(iteration.end_ns);
    writer.put_text(engine::encode(iteration.record));
  }
  return writer.take();
}

RankRun decode_run(std::string_view bytes) {
  WireReader reader(bytes);
  RankRun run;
  run.start_ns = reader.get<int64_t>();
  run.iterations.resize(reader.get<uint32_t>());
  for (RankRun::Iteration& iteration : run.iterations) {
    iteration.end_ns = reader.get<int64_t>();
    iteration.record = engine::decode_iteration(reader.get_text());
  }
  return run;
}

// Rank 0's probe; the other ranks have none.
class RankProbe {
 public:
  // REQUIRES: the setup names a format.
  RankProbe(const RankBenchSetup& setup, const transport::MessagePipe& pipe)
      : pipe_(pipe), format_(setup.engine.format.value()), probe_(setup.processors) {}

  Status tell_all() {
    const limits::Limits limits = probe_.measure();
    operation_ = operation_of(format_, limits);
    return tell(pipe_, MessageKind::kLimits, limits);
  }

  // REQUIRES: tell_all() was called.
  Status tell_quick() {
    return tell(pipe_, MessageKind::kQuickLimits,
                QuickLimits{.read_gbps = probe_.read_gbps(),
                            .gops = probe_.gops(operation_),
                            .flag_one_way_ns = probe_.flag_one_way_ns(),
                            .operation = operation_});
  }

 private:
  const transport::MessagePipe& pipe_;
  kernels::WeightFormat format_;
  limits::Probe probe_;
  limits::Operation operation_ = limits::Operation::kF32;
};

// Whether to go on: the same answer on every rank.
Result<bool> meet(transport::Endpoint& endpoint, const char* what) {
  std::vector<transport::AgreedWords> words;
  const uint64_t stop = endpoint.memory().control().stop_requested.load() != 0 ? 1 : 0;
  WIDEEP_TRY(endpoint.agree({stop}, {.what = what}, &words));
  uint64_t any = 0;
  for (const transport::AgreedWords& each : words) any |= each[0];
  return any == 0;
}

class RankBench {
 public:
  RankBench(const RankBenchSetup& setup, transport::Endpoint& endpoint,
            const transport::MessagePipe& pipe)
      : setup_(setup), endpoint_(endpoint), pipe_(pipe) {}

  Status run() {
    WIDEEP_TRY_ASSIGN(rank_engine_, engine::RankEngine::start(
                                        setup_.engine, endpoint_,
                                        [this](uint64_t bytes) { loaded(bytes); }, observer()));
    if (endpoint_.rank() == 0) {
      probe_.emplace(setup_, pipe_);
      WIDEEP_TRY(probe_->tell_all());
    }
    for (size_t run = 0; run < setup_.plan.runs.size(); ++run) {
      WIDEEP_TRY_ASSIGN(const bool go_on, probe_and_meet());
      if (!go_on) return {};
      WIDEEP_TRY(run_one(run));
    }
    WIDEEP_TRY_ASSIGN(const bool go_on, probe_and_meet());
    return go_on && probe_ ? probe_->tell_all() : Status();
  }

 private:
  engine::EngineObserver observer() {
    return {.on_iteration = [this](const engine::IterationRecord& record) {
      run_.iterations.push_back({base::wall_ns(), record});
      return Status();
    }};
  }

  void loaded(uint64_t bytes) {
    // A parent that is gone ends this process by itself.
    [[maybe_unused]] const Status sent = tell(pipe_, MessageKind::kLoaded, bytes);
  }

  // The others sleep until rank 0 has probed.
  Result<bool> probe_and_meet() {
    WIDEEP_TRY_ASSIGN(const bool go_on, meet(endpoint_, "the end of the run before"));
    if (!go_on) return false;
    if (probe_) WIDEEP_TRY(probe_->tell_quick());
    return meet(endpoint_, "the probe of the limits");
  }

  // Told to the parent when it is over: nothing but the run itself is measured.
  Status run_one(size_t run) {
    const auto ranks = static_cast<size_t>(endpoint_.num_ranks());
    std::vector<engine::Request> requests = make_requests(setup_.plan, setup_.engine.config, run);
    engine::Engine& engine = rank_engine_->engine();
    for (size_t i = static_cast<size_t>(endpoint_.rank()); i < requests.size(); i += ranks) {
      WIDEEP_TRY(engine.submit(std::move(requests[i])));
    }
    run_ = {};
    WIDEEP_TRY_ASSIGN([[maybe_unused]] const bool go_on, meet(endpoint_, "the start of the run"));
    run_.start_ns = base::wall_ns();
    WIDEEP_TRY(engine.run());
    return pipe_.send(message_of(MessageKind::kRun, encode(run_)));
  }

  const RankBenchSetup& setup_;
  transport::Endpoint& endpoint_;
  const transport::MessagePipe& pipe_;
  RankRun run_;
  std::unique_ptr<engine::RankEngine> rank_engine_;
  std::optional<RankProbe> probe_;
};

}  // namespace

limits::Operation operation_of(kernels::WeightFormat format, const limits::Limits& limits) {
  using limits::Operation;
  const Operation wanted = kernels::takes_quantized_rows(format)   ? Operation::kInt8
                           : format == kernels::WeightFormat::kF32 ? Operation::kF32
                                                                   : Operation::kBf16;
  return limits.gops(wanted) > 0.0 ? wanted : Operation::kF32;
}

Status run_rank_bench(const RankBenchSetup& setup, transport::Endpoint& endpoint,
                      const transport::MessagePipe& pipe) {
  log::set_prefix(fmt::format("rank {}: ", endpoint.rank()));
  return RankBench(setup, endpoint, pipe).run();
}

void read_message(std::string_view message, const MessageHandler& handler) {
  WireReader reader(message.substr(1));
  switch (static_cast<MessageKind>(message[0])) {
    case MessageKind::kLoaded:
      return handler.on_loaded(reader.get<uint64_t>());
    case MessageKind::kLimits:
      return handler.on_limits(reader.get<limits::Limits>());
    case MessageKind::kQuickLimits:
      return handler.on_quick_limits(reader.get<QuickLimits>());
    case MessageKind::kRun:
      return handler.on_run(decode_run(message.substr(1)));
  }
}

}  // namespace wideep::measure
