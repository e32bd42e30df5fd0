// SPDX-License-Identifier: Apache-2.0
//
// wideep generate: generates text for prompts. The ranks are forked on this machine, or mpirun or
// srun has started them.
//
// Options win over the model's own defaults; all become GenerateOptions. Ranks that a launcher has
// started agree on errors first: each reads the same options, and one that returned alone would
// leave the others waiting.
#include "run/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "generate_output.h"
#include "model/config/model_path.h"
#include "prompt_cache_options.h"
#include "prompts_file.h"
#include "run/online_text.h"
#include "run/plan_text.h"
#include "run/sampling_defaults.h"
#include "run_options.h"
#include "server/chat_files.h"
#include "started.h"

namespace wideep::tools {
namespace {

using nlohmann::ordered_json;

// What is not given is as the model's files have it.
struct Sampling {
  std::optional<double> temperature, top_p;
  std::optional<int> top_k, max_tokens;
};

struct Options {
  run::GenerateOptions engine;
  Sampling sampling;
  std::string generation_config = "auto";
  std::vector<std::string> prompts;
  std::string prompts_file;
  bool chat = false;
  RankRunOptions ranks;
  PromptCacheOptions prompts_kept;
  bool json = false;
};

Status check_sampling(const engine::SamplingParams& sampling) {
  if (!(sampling.temperature >= 0.0f) || std::isinf(sampling.temperature)) {
    return invalid_input(
        fmt::format("--temperature: expected 0 (greedy) or more, found {}", sampling.temperature));
  }
  if (!(sampling.top_p > 0.0f && sampling.top_p <= 1.0f)) {
    return invalid_input(
        fmt::format("--top-p: expected more than 0 and at most 1, found {}", sampling.top_p));
  }
  return {};
}

// Greedy, if neither says anything else.
Status set_sampling(const Options& options, const run::SamplingDefaults& defaults,
                    run::GenerateOptions* result) {
  const Sampling& given = options.sampling;
  engine::SamplingParams& sampling = result->sampling;
  defaults.apply(&sampling);
  if (given.temperature) sampling.temperature = static_cast<float>(*given.temperature);
  if (given.top_p) sampling.top_p = static_cast<float>(*given.top_p);
  sampling.top_k = given.top_k.value_or(sampling.top_k);
  result->max_tokens = given.max_tokens.value_or(defaults.max_tokens.value_or(result->max_tokens));
  result->shortens_to_context = !given.max_tokens && defaults.max_tokens;
  const bool cuts = given.top_k.value_or(0) > 0 || given.top_p.value_or(1.0) < 1.0;
  if (sampling.temperature == 0.0f && cuts) {
    return invalid_input(
        "--top-k and --top-p have no effect at --temperature 0 (greedy): set a temperature");
  }
  return check_sampling(sampling);
}

// "-": standard input.
Result<std::vector<std::string>> prompts_of(const Options& options, const Started& started) {
  const auto num_inputs = std::ranges::count(options.prompts, "-") + (options.prompts_file == "-");
  if (num_inputs > 1) {
    return invalid_input("--prompt, --prompts: standard input (-) can be read once");
  }
  if (num_inputs > 0 && started.ranks() != nullptr) {
    return invalid_input(
        "--prompt, --prompts: ranks that a launcher has started cannot all read standard input "
        "(-): "
        "name a file");
  }
  std::vector<std::string> prompts = options.prompts;
  for (std::string& prompt : prompts) {
    if (prompt == "-") prompt = read_standard_input();
  }
  if (options.prompts_file == "-") {
    WIDEEP_TRY_ASSIGN(const auto more, parse_prompts(read_standard_input(), "standard input"));
    prompts.insert(prompts.end(), more.begin(), more.end());
  } else if (!options.prompts_file.empty()) {
    WIDEEP_TRY_ASSIGN(const auto more, read_prompts(options.prompts_file));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  return prompts;
}

// Each as a user's only message.
Result<std::vector<std::string>> chat_prompts(const std::string& model_dir,
                                              const std::vector<std::string>& texts) {
  WIDEEP_TRY(model::check_model_path(model_dir));  // else the template would be what is missing
  WIDEEP_TRY_ASSIGN(const server::ChatFiles chat, server::read_chat_files(model_dir));
  auto chosen = chat.templates.choose("", /*has_tools=*/false);
  WIDEEP_TRY(chosen.status().at("--chat"));
  std::vector<std::string> prompts;
  for (const std::string& text : texts) {
    WIDEEP_TRY_ASSIGN(prompts.emplace_back(),
                      chosen->chat.render({.messages = ordered_json::array(
                                               {ordered_json{{"role", "user"}, {"content", text}}}),
                                           .tools = {},
                                           .variables = ordered_json::object(),
                                           .special_tokens = chat.special_tokens}));
  }
  return prompts;
}

// notes: what is to be said beside the plan.
Result<run::GenerateOptions> engine_options(const Options& options, const Started& started,
                                            std::vector<std::string>* notes) {
  run::GenerateOptions result = options.engine;
  result.started = started.ranks();
  WIDEEP_TRY_ASSIGN(result.prompts, prompts_of(options, started));
  if (options.chat) {
    WIDEEP_TRY_ASSIGN(result.prompts, chat_prompts(result.model_dir, result.prompts));
    result.adds_special_tokens = false;  // the template has written them
  }
  WIDEEP_TRY_ASSIGN(const run::SamplingDefaults defaults,
                    run::read_sampling_defaults(result.model_dir, options.generation_config));
  WIDEEP_TRY(set_sampling(options, defaults, &result));
  *notes = defaults.lines();
  WIDEEP_TRY(apply_rank_run_options(options.ranks, started.prints(), &result));
  WIDEEP_TRY(apply_prompt_cache_options(options.prompts_kept, started.prints(), &result));
  return result;
}

void warn_of_missing_profile(const run::ProfileRequest& request, int64_t ran) {
  for (const auto& [first, last] : request.ranges) {
    if (last <= ran) continue;
    log::warn("profile of iterations {}-{}: the run had {} iterations", first, last, ran);
  }
}

// Loads the model and runs it. `shows`: whether this process prints progress and texts (rank 0 of
// started ranks, or the parent of forked ones).
Result<run::GenerateReport> generate(const run::GenerateOptions& options,
                                     const std::vector<std::string>& notes, bool shows,
                                     std::FILE* texts) {
  WIDEEP_TRY_ASSIGN(const auto generation, run::Generation::prepare(options));
  RunLines lines;
  run::RunView silent;
  run::RunView& view = shows ? lines : silent;
  const char* note = options.perfect_router ? " (perfect router: means nothing)" : "";
  TextStream stream(options.prompts, note, texts);
  view.plan(run::plan_text(generation->run()));
  for (const std::string& each : notes) view.line(each);
  run::LoadingProgress loading(view, generation->run().bytes_to_load());
  WIDEEP_TRY(generation->start([&](uint64_t bytes) { loading.add(bytes); }));
  while (const auto event = generation->next()) {
    if (const auto* read = std::get_if<run::WeightsRead>(&*event)) loading.add(read->bytes);
    if (const auto* each = std::get_if<run::Rebalance>(&*event)) view.rebalanced(*each);
    if (const auto* each = std::get_if<run::TrustChange>(&*event)) view.line(run::line_of(*each));
    if (const auto* each = std::get_if<run::BackgroundSilence>(&*event)) {
      view.line(run::line_of(*each, generation->run().online().size()));
    }
    if (!std::holds_alternative<run::Token>(*event)) continue;
    lines.end_loading();
    const run::TextPiece& piece = generation->text();
    stream.add(piece.prompt, piece.text, piece.last);
  }
  lines.end_loading();
  stream.end();
  return generation->take_report();
}

Status run(const Options& options, const Started& started) {
  std::vector<std::string> notes;
  Result<run::GenerateOptions> read = engine_options(options, started, &notes);
  WIDEEP_TRY(started.agree_on(read.status()));
  const run::GenerateOptions& wanted = *read;
  const bool shows_texts = started.prints() && !options.json;
  WIDEEP_TRY_ASSIGN(const run::GenerateReport report,
                    generate(wanted, notes, started.prints(), shows_texts ? stdout : nullptr));
  if (!started.prints()) return report.ended;
  if (options.json) {
    std::puts(formats::json_text(report_json(wanted, report), 2).c_str());
  } else {
    std::fputs(report_text(wanted, report).c_str(), stdout);
  }
  if (wanted.profile && report.ended.ok()) {
    warn_of_missing_profile(*wanted.profile, report.load.num_iterations);
  }
  return report.ended;
}

// The parser would turn a negative number into a large unsigned one.
std::string no_sign(const std::string& text) {
  return text.starts_with('-') ? fmt::format("expected 0 or more, found {}", text) : "";
}

void add_what_options(command_line::Command command, Options& options) {
  add_model_option(command, &options.engine.model_dir);
  command
      .add_option("--prompt", options.prompts,
                  "A prompt; repeat the option for several prompts; -: all of standard input")
      .one_value_each();  // else the prompt "[a, b]" would be read as a list of two
  command
      .add_option("--prompts", options.prompts_file,
                  "File of prompts, one JSON object per line: {\"prompt\": \"...\"}; -: standard "
                  "input")
      .path();
  command.add_flag("--chat", options.chat,
                   "Fill the model's chat template: each prompt is a user's message");
  command
      .add_option("--max-tokens", options.sampling.max_tokens,
                  "Most tokens to generate per prompt; by default max_new_tokens of "
                  "--generation-config, or 64")
      .range(1, 1 << 24);
  command.add_option("--temperature", options.sampling.temperature,
                     "Temperature of sampling; 0: greedy. By default that of --generation-config, "
                     "or 0");
  command
      .add_option("--top-k", options.sampling.top_k,
                  "Sample among the k most likely tokens; 0: all")
      .range(0, 1 << 24);
  command.add_option("--top-p", options.sampling.top_p,
                     "Sample among the most likely tokens whose probabilities sum to this");
  add_generation_config_option(command, &options.generation_config);
  command.add_option("--seed", options.engine.sampling.seed, "Seed of sampling").check(no_sign);
}

void add_how_options(command_line::Command command, Options& options) {
  add_rank_run_options(command, &options.ranks);
  add_prompt_cache_options(command, &options.prompts_kept);
  command
      .add_option("--prefill-chunk", options.engine.prefill_chunk,
                  "Most prompt tokens of one request in an iteration; 0: --max-num-tokens")
      .range(0, 1 << 20);
}

void add_output_options(command_line::Command command, Options& options) {
  command.add_flag("--logits-digest", options.engine.logits_digest,
                   "Print the SHA-256 of each prompt's logits, which is equal for every placement");
  command.add_flag("--json", options.json, "Only JSON on stdout");
}

}  // namespace

void add_generate_command(command_line::Command app, const Started& started, Status* status) {
  const command_line::Command command =
      app.add_command("generate", "Generate text with a MoE model on N ranks");
  auto options = std::make_shared<Options>();
  add_what_options(command, *options);
  add_how_options(command, *options);
  add_output_options(command, *options);
  command.on_run([options, &started, status] { *status = run(*options, started); });
}

}  // namespace wideep::tools
