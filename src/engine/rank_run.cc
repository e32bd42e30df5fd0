// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_run.h"

#include <map>

#include "balance/load_summary.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/try.h"
#include "engine/wire.h"

namespace wideep::engine {
namespace {

std::string message_of(MessageKind kind, std::string body) {
  return static_cast<char>(kind) + std::move(body);
}

// What this rank reports about its requests and iterations.
class Reporter {
 public:
  Reporter(const RunSetup& setup, int rank, const transport::Messenger& parent)
      : setup_(setup),
        parent_(parent),
        tells_initial_imbalance_(!setup.online.empty() && rank % setup.mapping.stage_size() == 0) {
    int index = 0;
    for (const auto& [layer, placement] : setup.placement.layers) layer_index_[layer] = index++;
    if (setup.options.profile) profiler_.emplace(*setup.options.profile, setup.trace, rank);
    if (setup.options.statistics) {
      const StatisticsPart part = statistics_part(setup, rank);
      recorder_.emplace(*setup.options.statistics, part.file,
                        recordings::StatisticsShape{.num_experts = setup.config.routing.num_experts,
                                                    .top_k = setup.config.routing.top_k,
                                                    .ep_size = setup.mapping.stage_size(),
                                                    .num_stages = part.num_stages});
    }
  }

  EngineObserver observer() {
    return {.on_start = profiler_ ? [this](int64_t iteration) { profiler_->start(iteration); }
                                  : std::function<void(int64_t)>(),
            .on_token = [this](const TokenEvent& event) { return token(event); },
            .on_routing = [this](const RoutingEvent& event) { routing(event); },
            .on_iteration = [this](const IterationRecord& record) { return iteration(record); },
            .on_record_experts = [this](bool records) { return record_experts(records); },
            .on_rebalance = [this](const online::Rebalance& each) { rebalance(each); }};
  }

  // The engine has ended: what is still to be written or told.
  Status finish(const Status& run, const RunTimes& times, const NodeTraffic& traffic) {
    if (recorder_) {
      const Status written = recorder_->finish(run.ok());
      if (run.ok()) WIDEEP_TRY(written);
      if (!written.ok()) log::warn("{}", written.message());  // the run's failure is the error
    }
    for (const auto& [index, counts] : request_counts_) {
      WireWriter writer;
      writer.put(index);
      writer.put_all(counts);
      WIDEEP_TRY(parent_.send(message_of(MessageKind::kRequestCounts, writer.take())));
    }
    WireWriter writer;
    writer.put(times);
    writer.put(traffic);
    WIDEEP_TRY(parent_.send(message_of(MessageKind::kTimes, writer.take())));
    return run;
  }

 private:
  // Told before the iteration's record.
  Status token(const TokenEvent& event) {
    std::string digest;
    if (setup_.options.logits_digest) {
      base::Sha256& sha = digests_[event.request_index];
      sha.update(event.logits.data(), event.logits.size_bytes());
      if (event.finish_reason != FinishReason::kNotFinished) digest = sha.hex();
    }
    if (tokens_.empty()) tokens_.put(MessageKind::kTokens);
    tokens_.put(event.request_index);
    tokens_.put(event.sampled);
    tokens_.put(event.finish_reason);
    tokens_.put(event.cached_tokens);
    tokens_.put_text(digest);
    tokens_.put_all(event.likely);
    return {};
  }

  // In order with the iterations that it begins or ends.
  Status record_experts(bool records) {
    records_experts_ = records;
    WireWriter writer;
    writer.put(records);
    return parent_.send(message_of(MessageKind::kRecordExperts, writer.take()));
  }

  void routing(const RoutingEvent& event) {
    if (tells_initial_imbalance_) {
      const std::vector<int64_t> loads(event.group_counts.begin(), event.group_counts.end());
      initial_imbalances_.push_back(static_cast<float>(
          balance::summarize_loads(
              balance::rank_loads(setup_.placement.layers.at(event.layer), loads))
              .imbalance_ratio));
    }
    if (recorder_ && recording_.ok()) {
      recording_ = recorder_->add(event.iteration, event.layer, event.counts);
    }
    if (!setup_.options.routing_log) return;
    const int num_experts = setup_.config.routing.num_experts, top_k = setup_.config.routing.top_k;
    const size_t offset = static_cast<size_t>(layer_index_.at(event.layer)) * num_experts;
    for (size_t token = 0; token < event.owners.size(); ++token) {
      auto& counts = request_counts_[event.owners[token]->request.index];
      counts.resize(layer_index_.size() * num_experts);
      for (int k = 0; k < top_k; ++k) ++counts[offset + event.experts[token * top_k + k]];
    }
  }

  Status iteration(IterationRecord record) {
    WIDEEP_TRY(recording_);
    if (!setup_.options.routing_log && !records_experts_) {
      for (LayerRecord& layer : record.layers) layer.counts.clear();
    }
    for (size_t i = 0; i < initial_imbalances_.size(); ++i) {
      record.layers[i].initial_imbalance = initial_imbalances_[i];
    }
    initial_imbalances_.clear();
    if (!tokens_.empty()) {
      WIDEEP_TRY(parent_.send_with_next(tokens_.bytes()));
      tokens_.clear();
    }
    return parent_.send(message_of(MessageKind::kIteration, encode(record)));
  }

  void rebalance(const online::Rebalance& each) const {
    WireWriter writer;
    writer.put(each);
    // A parent that is gone ends this process by itself.
    [[maybe_unused]] const Status sent =
        parent_.send(message_of(MessageKind::kRebalance, writer.take()));
  }

  const RunSetup& setup_;
  const transport::Messenger& parent_;
  std::map<int, int> layer_index_;  // model's layer index → position among MoE layers
  std::optional<RankProfiler> profiler_;
  std::optional<StatisticsRecorder> recorder_;
  Status recording_;
  WireWriter tokens_;             // of this iteration: a message
  bool records_experts_ = false;  // the parent does, from what iterations tell
  const bool tells_initial_imbalance_;
  std::vector<float> initial_imbalances_;               // of this iteration's layers so far
  std::map<int, base::Sha256> digests_;                 // by request index
  std::map<int, std::vector<int64_t>> request_counts_;  // by request index, [MoE layers × experts]
};

}  // namespace

StatisticsPart statistics_part(const RunSetup& setup, int rank) {
  StatisticsPart part;
  const int own = setup.mapping.coordinates(rank).pp_rank;
  for (int stage = 0; stage < setup.mapping.sizes().pp; ++stage) {
    const parallel::LayerRange layers = setup.mapping.pp_layers(stage, setup.config.num_layers);
    const auto first = setup.placement.layers.lower_bound(layers.first);
    if (first == setup.placement.layers.end() || !layers.contains(first->first)) continue;
    if (stage < own) part.file += setup.mapping.stage_size();
    ++part.num_stages;
  }
  part.file += rank % setup.mapping.stage_size();
  return part;
}

RankSetup rank_setup(const RunSetup& setup) {
  return {.config = setup.config,
          .tensors = setup.tensors,
          .placement = setup.placement,
          .kernels = setup.kernels,
          .weights = setup.weights,
          .format = setup.options.format,
          .cache = setup.options.cache_dtype(),
          .dispatch = setup.dispatch,
          .moe = setup.moe,
          .limits = setup.limits,
          .mapping = setup.mapping,
          .joint = setup.joint,
          .pipeline = setup.pipeline,
          .threads = setup.threads,
          .online = setup.online};
}

Status run_rank(const RunSetup& setup, transport::Endpoint& endpoint,
                const transport::Messenger& parent) {
  const int rank = endpoint.rank();
  log::set_prefix(fmt::format("rank {}: ", rank));
  const auto tell_loaded = [&](uint64_t bytes) {
    WireWriter writer;
    writer.put(bytes);
    // A parent that is gone ends this process by itself.
    [[maybe_unused]] const Status sent =
        parent.send(message_of(MessageKind::kLoaded, writer.take()));
  };
  const RankSetup common = rank_setup(setup);
  Reporter reporter(setup, rank, parent);
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<RankEngine> rank_engine,
                    RankEngine::start(common, endpoint, tell_loaded, reporter.observer()));
  Engine& engine = rank_engine->engine();
  const int tp = setup.mapping.sizes().tp;
  if (!setup.feeds.empty()) {
    RequestFeed feed(setup.feeds[static_cast<size_t>(rank)],
                     setup.joint ? std::nullopt : std::optional(rank % tp), endpoint.bridge());
    WIDEEP_TRY(parent.send(message_of(MessageKind::kReady, "")));
    const Status served = engine.serve(feed);
    return reporter.finish(served, engine.times(), rank_engine->traffic());
  }
  for (size_t i = 0; i < setup.requests.size(); ++i) {
    const bool mine = setup.joint || static_cast<int>(i) % tp == rank % tp;
    if (mine) WIDEEP_TRY(engine.submit(setup.requests[i]));
  }
  const Status run = engine.run();
  return reporter.finish(run, engine.times(), rank_engine->traffic());
}

void read_message(std::string_view message, const MessageHandler& handler) {
  WireReader reader(message.substr(1));
  switch (static_cast<MessageKind>(message[0])) {
    case MessageKind::kLoaded:
      return handler.on_loaded(reader.get<uint64_t>());
    case MessageKind::kTokens:
      while (!reader.at_end()) {
        TokenMessage token;
        token.request_index = reader.get<int>();
        token.sampled = reader.get<Sampled>();
        token.finish_reason = reader.get<FinishReason>();
        token.cached_tokens = reader.get<int>();
        token.digest = reader.get_text();
        token.likely = reader.get_all<Sampled>();
        handler.on_token(token);
      }
      return;
    case MessageKind::kIteration:
      return handler.on_iteration(decode_iteration(message.substr(1)));
    case MessageKind::kRequestCounts: {
      const int index = reader.get<int>();
      return handler.on_request_counts({index, reader.get_all<int64_t>()});
    }
    case MessageKind::kRebalance:
      return handler.on_rebalance(reader.get<online::Rebalance>());
    case MessageKind::kReady:
      return handler.on_ready();
    case MessageKind::kRecordExperts:
      return handler.on_record_experts(reader.get<bool>());
    case MessageKind::kTimes: {
      const auto times = reader.get<RunTimes>();
      return handler.on_times(times, reader.get<NodeTraffic>());
    }
  }
}

}  // namespace wideep::engine
