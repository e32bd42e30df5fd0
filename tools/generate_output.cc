// SPDX-License-Identifier: Apache-2.0
//
// While it runs: one text at a time, that of the first prompt that has not ended, as it comes;
// others wait, for mixed texts could not be read. Afterwards: a table and lines, each only if the
// run had what it reports. Progress goes to stderr, so that stdout has the texts alone.
#include "generate_output.h"

#include <fmt/format.h>

#include "base/log.h"
#include "run/online_text.h"

namespace wideep::tools {
namespace {

using engine::FinishReason;
using nlohmann::ordered_json;
using run::GenerateReport;
using run::LayerLoad;

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kNotNumbers:
    case FinishReason::kExpertLost:
      return "error";
    case FinishReason::kNotFinished:
    case FinishReason::kFailed:
      break;
  }
  return "not_finished";
}

// One line per MoE layer with the pairs of each rank; if the ranks do not fit on a line, their mean
// and maximum.
std::string load_table(const std::vector<LayerLoad>& layers) {
  constexpr size_t kMaxColumns = 16;
  std::string text = "(token, expert) pairs computed by each rank:\n  layer";
  const size_t ranks = layers.empty() ? 0 : layers[0].received.size();
  const bool all = ranks <= kMaxColumns;
  for (size_t rank = 0; all && rank < ranks; ++rank) text += fmt::format(" {:>8}", rank);
  text += all ? "   imbalance\n" : "     mean      max   imbalance\n";
  for (const LayerLoad& layer : layers) {
    text += fmt::format("  {:5}", layer.layer);
    int64_t sum = 0, max = 0;
    for (const int64_t pairs : layer.received) {
      if (all) text += fmt::format(" {:8}", pairs);
      sum += pairs;
      max = std::max(max, pairs);
    }
    if (!all) text += fmt::format(" {:8} {:8}", sum / static_cast<int64_t>(ranks), max);
    text += fmt::format("   {:9.3f}\n", layer.imbalance_ratio);
  }
  return text;
}

ordered_json result_json(const GenerateReport& report, size_t index,
                         const run::GenerateOptions& options) {
  const run::PromptResult& result = report.results[index];
  ordered_json json = {{"index", index},
                       {"prompt", options.prompts[index]},
                       {"text", result.text},
                       {"num_prompt_tokens", result.num_prompt_tokens},
                       {"tokens", result.tokens},
                       {"log_probabilities", result.log_probabilities},
                       {"finish_reason", finish_name(result.finish_reason)}};
  if (options.perfect_router) json["meaningless"] = true;
  if (!result.digest.empty()) json["logits_digest"] = result.digest;
  return json;
}

// Ranks that have equally many tokens choose evenly, but iterations may give them different numbers.
std::string perfect_router_text(double imbalance_ratio) {
  if (imbalance_ratio == 0.0) {
    return "perfect router      tokens went to all ranks evenly; the texts mean nothing\n";
  }
  return "perfect router      tokens went to the ranks in turn, but iterations with different "
         "numbers of tokens on the ranks, or that the line \"router\" names, are not even; the "
         "texts "
         "mean nothing\n";
}

}  // namespace

// ---- while it runs ----

void RunLines::plan(const std::string& lines) { log::info("{}", lines); }

void RunLines::line(const std::string& text) {
  loading_.end();
  log::info("{}", text);
}

void RunLines::rebalanced(const online::Rebalance& rebalance) {
  log::info("{}", run::line_of(rebalance));
}

TextStream::TextStream(const std::vector<std::string>& prompts, const std::string& note,
                       std::FILE* out)
    : prompts_(prompts), note_(note), out_(out), waiting_(prompts.size()) {}

void TextStream::add(int prompt, const std::string& text, bool last) {
  if (out_ == nullptr) return;
  Waiting& waiting = waiting_[prompt];
  waiting.text += text;
  waiting.ended = last;
  advance();
}

// A full disk shows in the stream's error indicator, which main() reads at the end.
void TextStream::print(const std::string& text) const {
  std::fwrite(text.data(), 1, text.size(), out_);
}

void TextStream::begin_line() {
  print(fmt::format("--- prompt {}{} ---\n{}", current_, note_, prompts_[current_]));
  line_open_ = true;
}

void TextStream::advance() {
  for (; current_ < waiting_.size(); ++current_) {
    Waiting& waiting = waiting_[current_];
    if (waiting.text.empty() && !waiting.ended) break;
    if (!line_open_) begin_line();
    print(waiting.text);
    waiting.text.clear();
    if (!waiting.ended) break;
    print("\n\n");
    line_open_ = false;
  }
  std::fflush(out_);
}

void TextStream::end() {
  if (out_ == nullptr) return;
  for (; current_ < waiting_.size(); ++current_) {
    const Waiting& waiting = waiting_[current_];
    if (!line_open_ && waiting.text.empty() && !waiting.ended) continue;
    if (!line_open_) begin_line();
    print(waiting.text + (waiting.ended ? "\n\n" : " [ended early]\n\n"));
    line_open_ = false;
  }
  std::fflush(out_);
}

// ---- afterwards ----

std::string online_text(const run::OnlineTotals& online) {
  const std::string cancelled =
      online.cancelled == 0 ? "" : fmt::format(", {} cancelled", online.cancelled);
  return fmt::format(
      "online balancing    {} experts moved ({:.1f} MiB, {:.2f} s of copying) in {} layer "
      "updates{}; "
      "{}\n",
      online.moves, static_cast<double>(online.bytes) / (1 << 20), online.copy_seconds,
      online.published, cancelled, run::text_of(online.ledger));
}

std::string speculation_text(const run::SpeculationTotals& speculation) {
  std::string text = fmt::format(
      "speculation         {} of {} draft tokens accepted ({:.3f}) in {} steps of requests; "
      "acceptance length {:.2f}\n",
      speculation.accepted, speculation.drafted, speculation.acceptance_rate(), speculation.drafts,
      speculation.acceptance_length());
  if (speculation.expected_seconds > 0) {
    text += fmt::format(
        "  expected          {:.1f} tokens in {:.3f} s; there were {:.0f} in {:.3f} s\n",
        speculation.expected_tokens, speculation.expected_seconds, speculation.tokens,
        speculation.seconds);
  }
  return text;
}

// The keys of trtllm-bench's decoding_stats, and more.
ordered_json speculation_json(const run::SpeculationTotals& speculation) {
  ordered_json json = {{"num_draft_tokens", speculation.drafted},
                       {"num_accepted_draft_tokens", speculation.accepted},
                       {"draft_acceptance_rate", speculation.acceptance_rate()},
                       {"acceptance_length", speculation.acceptance_length()},
                       {"num_drafts", speculation.drafts},
                       {"accepted_at", speculation.accepted_at}};
  if (speculation.expected_seconds > 0) {
    json["expected"] = {{"tokens", speculation.expected_tokens},
                        {"tokens_measured", speculation.tokens},
                        {"seconds", speculation.expected_seconds},
                        {"seconds_measured", speculation.seconds}};
  }
  return json;
}

std::string stages_text(const std::vector<run::StageReport>& stages) {
  std::string text;
  for (size_t i = 0; i < stages.size(); ++i) {
    const run::StageReport& stage = stages[i];
    text +=
        fmt::format("stage {:<13} {:.3f}   share of its time spent waiting for other stages\n",
                    fmt::format("{} (layers {}-{})", i, stage.layers.first, stage.layers.last - 1),
                    stage.idle_share);
  }
  return text;
}

ordered_json stages_json(const std::vector<run::StageReport>& stages) {
  ordered_json json = ordered_json::array();
  for (const run::StageReport& stage : stages) {
    json.push_back({{"first_layer", stage.layers.first},
                    {"last_layer", stage.layers.last - 1},
                    {"idle_share", stage.idle_share}});
  }
  return json;
}

std::string nodes_text(const run::NodesReport& nodes) {
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "between nodes       {:.2f} MiB dispatched ({:.3f} of the rows), {:.2f} MiB returned ({:.3f} "
      "of the rows), {:.2f} MiB else\n",
      mebibytes(nodes.traffic.dispatched_bytes), nodes.dispatch_ratio(),
      mebibytes(nodes.traffic.returned_bytes), nodes.combine_ratio(),
      mebibytes(nodes.traffic.other_bytes));
}

ordered_json nodes_json(const run::NodesReport& nodes) {
  return {{"count", nodes.num_nodes},
          {"dispatch",
           {{"rows", nodes.traffic.dispatched_rows},
            {"row_bytes", nodes.row_bytes},
            {"bytes", nodes.traffic.dispatched_bytes},
            {"ratio", nodes.dispatch_ratio()}}},
          {"combine",
           {{"rows", nodes.traffic.returned_rows},
            {"row_bytes", nodes.result_bytes},
            {"bytes", nodes.traffic.returned_bytes},
            {"ratio", nodes.combine_ratio()}}},
          {"other_bytes", nodes.traffic.other_bytes}};
}

ordered_json online_json(const GenerateReport& report) {
  const run::OnlineTotals& online = *report.online;
  ordered_json json = {{"layer_updates", online.published},
                       {"cancelled", online.cancelled},
                       {"moves", online.moves},
                       {"bytes", online.bytes},
                       {"hash_failures", online.hash_failures},
                       {"copy_seconds", online.copy_seconds},
                       {"late_copies", online.lent_copies},
                       {"expected_seconds", online.ledger.expected_seconds},
                       {"saved_seconds", online.ledger.saved_seconds},
                       {"lost_seconds", online.ledger.lost_seconds},
                       {"paid_seconds", online.ledger.paid_seconds},
                       {"rests", online.resting > 0},
                       {"seconds_since_plan", online.seconds_since_plan},
                       {"seconds_since_balancer_ran", online.seconds_since_balancer_ran},
                       {"seconds_since_updater_ran", online.seconds_since_updater_ran},
                       {"rebalances", ordered_json::array()}};
  for (const online::Rebalance& each : report.rebalances) {
    json["rebalances"].push_back({{"iteration", each.iteration},
                                  {"layers", each.layers},
                                  {"cancelled", each.cancelled},
                                  {"moves", each.moves},
                                  {"bytes", each.bytes},
                                  {"imbalance_before", each.imbalance_before},
                                  {"imbalance_after", each.imbalance_after},
                                  {"seconds", each.seconds},
                                  {"copy_seconds", each.copy_seconds},
                                  {"late_copies", each.lent_copies}});
  }
  return json;
}

std::string report_text(const run::GenerateOptions& options, const GenerateReport& report) {
  const run::LoadTotals& load = report.load;
  std::string text;
  if (options.logits_digest) {
    for (size_t i = 0; i < report.results.size(); ++i) {
      if (!report.results[i].digest.empty()) {
        text += fmt::format("digest {} {}\n", i, report.results[i].digest);
      }
    }
  }
  const bool has_experts = !load.layers.empty();
  if (has_experts) {
    text += load_table(load.layers);
    text += fmt::format(
        "imbalance ratio     {:.3f}   (max − mean) / mean over ranks, mean over iterations and "
        "layers\n",
        load.imbalance_ratio());
  }
  text += fmt::format(
      "tokens              {} prompt + {} generated in {} iterations\n"
      "wall time           {:.2f} s   {:.1f} tokens/s generated (weights loaded in {:.2f} s)\n"
      "critical path       {:.0f} ms   slowest rank of every step; mean rank {:.0f} ms\n",
      load.prompt_tokens, load.generated_tokens, load.num_iterations, report.wall_seconds,
      report.tokens_per_second(), report.load_seconds, load.critical_path_ms, load.mean_rank_ms);
  if (has_experts) {
    text += fmt::format(
        "  of it experts     {:.0f} ms   slowest rank of every layer; mean rank {:.0f} ms\n",
        load.critical_path_experts_ms, load.mean_experts_ms);
  }
  if (options.parallel.speculative_config) text += speculation_text(load.speculation);
  text += stages_text(report.stages);
  if (report.nodes) text += nodes_text(*report.nodes);
  if (report.online) text += online_text(*report.online);
  if (options.perfect_router) {
    text += perfect_router_text(load.imbalance_ratio());
  }
  return text;
}

ordered_json report_json(const run::GenerateOptions& options, const GenerateReport& report) {
  const run::LoadTotals& load = report.load;
  ordered_json json = {{"model", options.model_dir},
                       {"ranks", options.parallel.mapping().world_size()},
                       {"isa", report.isa}};
  if (options.perfect_router) json["perfect_router"] = true;
  for (size_t i = 0; i < report.results.size(); ++i) {
    json["results"].push_back(result_json(report, i, options));
  }
  json["timings"] = {{"load_seconds", report.load_seconds},
                     {"wall_seconds", report.wall_seconds},
                     {"tokens_per_second", report.tokens_per_second()},
                     {"critical_path_ms", load.critical_path_ms},
                     {"mean_rank_ms", load.mean_rank_ms},
                     {"critical_path_experts_ms", load.critical_path_experts_ms},
                     {"mean_experts_ms", load.mean_experts_ms}};
  json["load"] = {{"iterations", load.num_iterations},
                  {"prompt_tokens", load.prompt_tokens},
                  {"generated_tokens", load.generated_tokens},
                  {"imbalance_ratio", load.imbalance_ratio()}};
  for (const LayerLoad& layer : load.layers) {
    json["load"]["layers"].push_back({{"layer", layer.layer},
                                      {"received", layer.received},
                                      {"imbalance_ratio", layer.imbalance_ratio}});
  }
  if (options.parallel.speculative_config) {
    json["speculation"] = speculation_json(load.speculation);
  }
  if (!report.stages.empty()) json["stages"] = stages_json(report.stages);
  if (report.nodes) json["nodes"] = nodes_json(*report.nodes);
  if (report.online) json["online"] = online_json(report);
  return json;
}

}  // namespace wideep::tools
