// SPDX-License-Identifier: Apache-2.0
//
// `wideep generate` without its command line: prompts in, texts out. The ranks are forked on this
// machine, or started by mpirun or srun on several.
//
//   WIDEEP_TRY_ASSIGN(const auto generation, Generation::prepare(options));
//   WIDEEP_TRY(generation->start(on_bytes));
//   while (const auto event = generation->next()) { ... show it ... }
//   WIDEEP_TRY_ASSIGN(GenerateReport report, generation->take_report());
//
// If mpirun or srun has started the ranks, all of them make these calls. Rank 0 gets the report of
// the run, the others get empty reports.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/iteration_lines.h"
#include "run/iteration_log.h"
#include "run/iteration_summary.h"
#include "run/rank_group.h"
#include "tokenizer/stream_decoder.h"
#include "wideep/status.h"

namespace wideep::run {

struct GenerateOptions : RunOptions {
  std::vector<std::string> prompts;
  bool adds_special_tokens = true;  // to the prompts; else they have them as text
  int max_tokens = 64;
  bool shortens_to_context = false;  // answers; else what does not fit is an error
  engine::SamplingParams sampling;
  engine::SharedGrammar grammar = nullptr;  // of all answers; needs takes_grammars
};

struct PromptResult {
  int num_prompt_tokens = 0;
  std::vector<int32_t> tokens;
  std::vector<float> log_probabilities;
  std::string text;
  // kNotFinished: the run ended early. kNotNumbers: this request failed alone.
  engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
  std::string digest;  // with logits_digest: SHA-256 over the float32 logits of all steps
};

// One pipeline stage over a run.
struct StageReport {
  parallel::LayerRange layers;
  double idle_share = 0.0;  // the part of the time that its ranks waited for other stages
};

// Traffic between nodes.
struct NodesReport {
  int num_nodes = 0;
  size_t row_bytes = 0, result_bytes = 0;  // of a dispatched row, of a returned result
  NodeTraffic traffic;                     // of all ranks

  // Bytes sent / bytes of the rows that must cross at least; 0 if no row must cross.
  double dispatch_ratio() const {
    return ratio(traffic.dispatched_bytes, traffic.dispatched_rows, row_bytes);
  }
  double combine_ratio() const {
    return ratio(traffic.returned_bytes, traffic.returned_rows, result_bytes);
  }

 private:
  static double ratio(int64_t bytes, int64_t rows, size_t row_bytes) {
    return rows == 0 ? 0.0
                     : static_cast<double>(bytes) / static_cast<double>(rows) /
                           static_cast<double>(row_bytes);
  }
};

struct GenerateReport {
  std::vector<PromptResult> results;
  std::string isa;
  double load_seconds = 0.0;
  double wall_seconds = 0.0;  // from the begin of the first iteration to the end of the last
  LoadTotals load;
  std::vector<StageReport> stages;                    // empty if there is one
  std::optional<NodesReport> nodes;                   // nullopt if there is one
  std::optional<OnlineTotals> online;                 // with online balancing
  std::vector<Rebalance> rebalances;                  // in the order in which they ended
  std::optional<recordings::RoutingLog> routing_log;  // if its request has no path
  Status ended;  // ok, interrupted, or why the ranks failed after they had begun

  double tokens_per_second() const {
    return wall_seconds > 0 ? static_cast<double>(load.generated_tokens) / wall_seconds : 0.0;
  }
};

// The next part of an answer's text, in whole characters.
struct TextPiece {
  int prompt = 0;
  std::string text;
  bool last = false;
};

class Generation {
 public:
  // Reads, checks and plans. Collective if a launcher has started the ranks. Errors: bad input, and
  // everything else that can be found before weights are loaded.
  static Result<std::unique_ptr<Generation>> prepare(const GenerateOptions& options);

  const Run& run() const { return *run_; }

  // Loads the weights and starts the ranks with all prompts. on_bytes: called with the bytes of
  // each tensor read. REQUIRES, if ranks are forked: the caller has started no other thread.
  Status start(const std::function<void(uint64_t)>& on_bytes);

  // Waits for the next event; nullopt: the ranks have ended.
  std::optional<Event> next();
  // The text that became complete with the last Token event; may be empty.
  const TextPiece& text() const { return text_; }

  // After next() has returned nullopt. Errors: the ranks ended before the first iteration. A later
  // failure is in GenerateReport::ended, beside what was generated until then.
  Result<GenerateReport> take_report();

 private:
  Generation(std::unique_ptr<const GenerateOptions> options, std::unique_ptr<Run> run,
             std::vector<engine::Request> requests, std::optional<IterationLog> log);
  void take(const Token& token);
  void take_failure(const Token& token);
  void take(const Iteration& iteration);
  void take(const Rebalance& rebalance);
  void take(const RankEnded& rank);

  std::unique_ptr<const GenerateOptions> options_;  // with cache_pages as the prompts need
  std::unique_ptr<Run> run_;
  std::vector<engine::Request> requests_;  // until start()
  std::optional<IterationLog> log_;
  const std::optional<IterationLines> lines_;
  std::unique_ptr<RankGroup> group_;

  GenerateReport report_;
  LoadSums loads_;
  std::vector<tokenizer::StreamDecoder> decoders_;  // of each prompt's answer
  TextPiece text_;
  Status not_numbers_;                  // of the first request that has failed
  int64_t created_ns_ = 0;              // construction
  int64_t first_ns_ = 0, last_ns_ = 0;  // begin of the first iteration, end of the last
};

// A whole run: prepare to take_report. on_event, if given, is called with every event.
Result<GenerateReport> generate(const GenerateOptions& options,
                                const std::function<void(const Event&)>& on_event = {});

}  // namespace wideep::run
