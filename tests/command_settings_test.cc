// SPDX-License-Identifier: Apache-2.0
// wideep generate with wrong options, placements and parallel configurations.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

struct Case {
  std::string text;  // of the file
  std::vector<std::string> parts;
};

std::string every_expert_but(int left_out, int num_slots) {
  std::string list;
  for (int slot = 0; slot < num_slots; ++slot) {
    const int expert = slot % 16;
    list += fmt::format("{}{}", slot == 0 ? "" : ", ", expert == left_out ? 0 : expert);
  }
  return "[" + list + "]";
}

class CommandSettings : public ::testing::Test {
 protected:
  CommandEnd run(const std::vector<std::string>& more) {
    return run_command(generate(small_model(), more));
  }

  // Runs the command with `text` in a file that `option` names.
  CommandEnd run_with_file(const std::string& option, const std::string& text,
                           const std::vector<std::string>& more = {}) {
    EXPECT_TRUE(formats::write_file(path_, text).ok());
    std::vector<std::string> arguments = {option, path_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  void expect_config_refused(const Case& c) {
    SCOPED_TRACE(c.text);
    std::vector<std::string> parts = c.parts;
    parts.push_back(path_);
    expect_refused(run_with_file("--config", c.text), parts);
  }

  base::ScratchDirectory directory_;
  std::string path_ = directory_.file("settings.yaml");
};

TEST_F(CommandSettings, PlacementFiles) {
  const std::string whole = every_expert_but(-1, 16);
  const std::vector<Case> cases = {
      {fmt::format("num_slots: 16\ninitial_global_assignments: {{1: {}, 2: {}}}\n", whole,
                   every_expert_but(13, 16)),
       {"initial_global_assignments.2", "expert 13 has no slot", "16 experts"}},
      {fmt::format("num_slots: 16\ninitial_global_assignments: {{1: {}, 2: [0, 1]}}\n", whole),
       {"initial_global_assignments.2", "16 slots", "found 2"}},
      {fmt::format("num_slots: 16\ninitial_global_assignments: {{1: {}}}\n", whole),
       {"initial_global_assignments", "layer 2 is missing"}},
      {fmt::format("num_slots: 16\ninitial_global_assignments: {{0: {0}, 1: {0}, 2: {0}}}\n",
                   whole),
       {"initial_global_assignments.0", "not a MoE layer"}},
      {"num_slots: 20\nnum_slot: 20\n", {"num_slot", "num_slots"}},
      {"num_slots: 18\n", {"num_slots", "multiple of the 4 ranks", "found 18", "20"}},
      {"num_slots: 12\n", {"num_slots", "16 experts", "found 12"}},
      {"layer_updates_per_iter: 0\n", {"num_slots", "missing"}},
      {"num_slots: 16\nlayer_updates_per_iter: 3\n",
       {"layer_updates_per_iter", "at most the model's 2 MoE layers", "found 3"}},
      {"num_slots: 16\nlayer_updates_per_iter: -1\n", {"layer_updates_per_iter", "-1"}},
      {"num_slots: [16\n", {":"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    std::vector<std::string> parts = c.parts;
    parts.push_back(path_);
    expect_refused(run_with_file("--load-balancer", c.text, {"--ranks", "4"}), parts);
  }
}

TEST_F(CommandSettings, MoreRanksThanSlots) {
  expect_refused(run_with_file("--load-balancer", "num_slots: 16\n", {"--ranks", "32"}),
                 {path_, "num_slots", "32 ranks", "16 slots"});
  expect_refused(run({"--ranks", "32"}), {"--ranks", "16 experts", "32 ranks"});
  expect_refused(run_with_file("--load-balancer", "num_slots: 16\nlayer_updates_per_iter: 1\n",
                               {"--ranks", "1"}),
                 {path_, "layer_updates_per_iter", "one rank holds all experts"});
  expect_refused(run({"--ranks", "3"}), {"--ranks", "16 experts", "3 ranks", "num_slots: 18"});
}

TEST_F(CommandSettings, AbsentFiles) {
  for (const char* option : {"--load-balancer", "--config", "--prompts"}) {
    SCOPED_TRACE(option);
    expect_refused(run({option, "/nonexistent/file"}), {"/nonexistent/file", "No such file"});
  }
}

TEST_F(CommandSettings, FeaturesThatAreNotBuilt) {
  const std::string dp =
      "tensor_parallel_size: 4\nmoe_expert_parallel_size: 4\nenable_attention_dp: true\n";
  const std::vector<Case> cases = {
      {"tensor_parallel_size: 2\nenable_attention_dp: true\nmoe_cluster_parallel_size: 2\n",
       {"moe_cluster_parallel_size", "not supported yet"}},
      {dp + "scheduler_config: {capacity_scheduler_policy: STATIC_BATCH}\n",
       {"scheduler_config.capacity_scheduler_policy", "GUARANTEED_NO_EVICT, MAX_UTILIZATION"}},
  };
  for (const Case& c : cases) expect_config_refused(c);
}

TEST_F(CommandSettings, HeadsThatRanksCannotShare) {
  expect_config_refused({"tensor_parallel_size: 8\nmoe_expert_parallel_size: 8\n",
                         {"tensor_parallel_size", "divisor of the model's 4 attention heads",
                          "found 8", "enable_attention_dp"}});
}

TEST_F(CommandSettings, Contradictions) {
  const std::vector<Case> cases = {
      {"tensor_parallel_size: 4\nmoe_expert_parallel_size: 3\n",
       {"moe_expert_parallel_size 3", "tensor_parallel_size 4"}},
      {"cp_config: {cp_type: helix}\n", {"cp_config", "context_parallel_size"}},
      {"tensor_parallel_sizes: 4\n", {"tensor_parallel_sizes", "tensor_parallel_size"}},
      {"tensor_parallel_size: four\n", {"tensor_parallel_size", "'four'"}},
      {"moe_config: {use_low_precision_moe_combine: true, combine_dtype: bf16}\n",
       {"moe_config.combine_dtype", "contradicts use_low_precision_moe_combine: true"}},
  };
  for (const Case& c : cases) expect_config_refused(c);
  expect_refused(run_with_file("--config", "tensor_parallel_size: 1\n", {"--ranks", "4"}),
                 {"--ranks", "--config"});
  expect_refused(run_with_file("--config", "moe_config: {load_balancer: {num_slots: 16}}\n",
                               {"--load-balancer", path_}),
                 {"--load-balancer", "moe_config.load_balancer"});
}

// As in TensorRT-LLM: a warning. The answers do not depend on it.
TEST_F(CommandSettings, BatchLargerThanTokensOfAnIteration) {
  const CommandEnd few = run({"--max-num-tokens", "4", "--max-batch-size", "8"});
  EXPECT_EQ(few.exit_code, 0) << few.err;
  EXPECT_THAT(few.err,
              testing::HasSubstr("warning: max_batch_size 8 is more than max_num_tokens 4: "
                                 "an iteration has at most 4 requests"));
  const CommandEnd file = run_with_file("--config", "max_batch_size: 1024\n");
  EXPECT_EQ(file.exit_code, 0) << file.err;
  EXPECT_THAT(file.err, testing::HasSubstr("max_batch_size 1024 is more than max_num_tokens 512"));
}

// What generate has no use for is named; what both commands have, holds.
TEST_F(CommandSettings, KeysOfWorkersOfTensorRtLlm) {
  const CommandEnd end = run_with_file(
      "--config",
      "stream_interval: 20\nprint_iter_log: true\ncuda_graph_config: {enable_padding: true}\n"
      "num_postprocess_workers: 4\nenv_overrides: {NCCL_GRAPH_REGISTER: 0, WIDEEP_ISA: ref}\n",
      {"--json"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* line :
       {"stream_interval has no effect: only wideep serve",
        "cuda_graph_config has no effect: ", "num_postprocess_workers has no effect: ",
        "NCCL_GRAPH_REGISTER is set, but wideep generate does not use it: there is no NCCL",
        "iter = 0, global_rank = 0, rank = 0, num_scheduled_requests = ", "'num_ctx_tokens': ",
        "iter = 3, "}) {
    EXPECT_THAT(end.err, testing::HasSubstr(line));
  }
  EXPECT_EQ(nlohmann::json::parse(end.out).at("isa"), "ref");  // WIDEEP_ISA was set in time
  expect_refused(run_with_file("--config", "pp_partition: [2]\n"),
                 {path_, "pp_partition", "expected [3]", "found [2]"});
}

TEST_F(CommandSettings, OnePartOfAFileOfSeveralWorkers) {
  const std::string text =
      "slurm: {partition: x}\nworker_config:\n  gen: {tensor_parallel_size: 2, "
      "moe_expert_parallel_size: 2, enable_attention_dp: true}\n  ctx: {tensor_parallel_size: 1}\n";
  expect_refused(run_with_file("--config", text),
                 {path_, "worker_config", "several workers", "FILE:PART"});
  const CommandEnd end = run({"--config", path_ + ":worker_config.gen", "--json"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(nlohmann::json::parse(end.out).at("ranks"), 2);
}

TEST_F(CommandSettings, VariablesThatACommandDoesNotUse) {
  constexpr const char* kPerfect = "ENABLE_PERFECT_ROUTER";
  CommandOptions options = generate(small_model());
  options.environment = {{"TRTLLM_ENABLE_PDL", "1"}, {"TRTLLM_WORKER_DISABLE_GC", "1"}};
  const CommandEnd end = run_command(options);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, testing::HasSubstr(
                           "TRTLLM_ENABLE_PDL is set, but wideep generate does not use it: "));
  EXPECT_THAT(end.err, testing::HasSubstr("TRTLLM_WORKER_DISABLE_GC is set, but wideep generate "
                                          "does not use it: there is no garbage collector"));
  const CommandEnd other = run_command({.arguments = {"balance", "report", "/nonexistent"},
                                        .environment = {{"ENABLE_PERFECT_ROUTER", "1"}}});
  EXPECT_THAT(other.err, testing::HasSubstr("ENABLE_PERFECT_ROUTER is set, but wideep balance "
                                            "report does not use it: it runs no router"));
  // Used, as wrong values show.
  using Case = std::tuple<std::vector<std::string>, const char*>;
  for (const auto& [command, variable] :
       {Case{{"figures", "ngram"}, "TLLM_NVTX_DEBUG"}, Case{{"figures", "ngram"}, kPerfect},
        Case{{"bench", "speculation"}, kPerfect},
        Case{{"bench", "compare-routing", "--dataset", "/nonexistent"},
             "TLLM_BENCHMARK_REQ_QUEUES_SIZE"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--model", small_model()});
    const CommandEnd used =
        run_command({.arguments = arguments, .environment = {{variable, "wrong"}}});
    expect_refused(used, {variable, "wrong"});
    EXPECT_THAT(used.err, testing::Not(testing::HasSubstr("does not use it")));
  }
}

TEST_F(CommandSettings, ContextLongerThanTheModels) {
  expect_refused(run_with_file("--config", "max_seq_len: 4097\n"),
                 {path_, "max_seq_len", "max_position_embeddings 4096", "found 4097"});
  expect_refused(run_with_file("--config", "max_seq_len: 10\n"),
                 {"prompt 0", "7 tokens and 4 to generate", "10 tokens"});
}

TEST_F(CommandSettings, SizesBeyondAllMemory) {
  for (const char* key : {"max_num_tokens", "max_batch_size", "max_seq_len"}) {
    SCOPED_TRACE(key);
    expect_refused(run_with_file("--config", fmt::format("{}: 4294967296\n", key)),
                   {path_, key, "found '4294967296'"});
  }
}

TEST_F(CommandSettings, CacheSmallerThanARequest) {
  const auto end = run_with_file("--config", "kv_cache_config: {max_tokens: 32}\n");
  expect_refused(
      end, {"prompt 0", "7 tokens and 4 to generate", "kv_cache_config.max_tokens", "found 32"});
}

TEST_F(CommandSettings, Options) {
  struct OptionCase {
    std::vector<std::string> arguments;
    std::vector<std::string> parts;
  };
  const std::vector<OptionCase> cases = {
      {{"--rank", "4"}, {"unknown option --rank: did you mean --ranks?"}},
      {{"surplus"}, {"--model", small_model() + " is given, and surplus as MODEL"}},
      {{small_model(), "surplus"}, {"unexpected arguments: surplus"}},
      {{"--temp", "1", "-ngl", "9"},
       {"unknown option --temp: here --temperature", "unknown option -ngl: leave it out"}},
      {{"--max-tokens", "0"}, {"--max-tokens", "0 not in range"}},
      {{"--max-tokens", "many"}, {"--max-tokens", "many"}},
      {{"--ranks", "0"}, {"--ranks", "0 not in range"}},
      {{"--dtype", "fp9"}, {"--dtype", "fp9", "bf16"}},
      {{"--timeout", "0"}, {"--timeout", "0"}},
      {{"--temperature", "-1"}, {"--temperature", "-1"}},
      {{"--temperature", "nan"}, {"--temperature", "nan"}},
      {{"--temperature", "1", "--seed", "-1"}, {"--seed", "expected 0 or more", "-1"}},
      {{"--prompt", "one", "two"}, {"--model", "two as MODEL"}},
      {{"--temperature", "1", "--top-p", "0"}, {"--top-p", "found 0"}},
      {{"--temperature", "1", "--top-p", "1.5"}, {"--top-p", "found 1.5"}},
      {{"--top-k", "5"}, {"--top-k", "--temperature"}},
      {{"--top-p", "0.5"}, {"--top-p", "--temperature"}},
      {{"--prompt", ""}, {"prompt 1", "no tokens"}},
      {{"--prompt", std::string(4090, 'a'), "--max-tokens", "7"},
       {"prompt 1", "4090 tokens", "7 to generate", "4096"}},
  };
  for (const OptionCase& c : cases) {
    SCOPED_TRACE(c.arguments[0] + " " + c.arguments.back().substr(0, 20));
    expect_refused(run(c.arguments), c.parts);
  }
}

TEST_F(CommandSettings, Context) {
  expect_refused(run({"--context", "4097"}),
                 {"--context: expected at most the model's max_position_embeddings 4096"});
  expect_refused(run({"--context", "0"}), {"--context", "0 not in range"});
  expect_refused(run({"--context", "8"}), {"prompt 0", "exceed the context of 8 tokens"});
  EXPECT_EQ(run({"--context", "11"}).exit_code, 0);
  expect_refused(run_with_file("--config", "max_seq_len: 64\n", {"--context", "128"}),
                 {"--context 128 contradicts max_seq_len: 64 of " + path_});
  EXPECT_EQ(run_with_file("--config", "max_seq_len: 64\n", {"--context", "64"}).exit_code, 0);
}

TEST_F(CommandSettings, CacheMemory) {
  expect_refused(run({"--kv-cache-memory", "8X"}), {"--kv-cache-memory", "expected bytes", "8X"});
  expect_refused(run({"--kv-cache-memory", "0"}),
                 {"prompt 0", "expected --kv-cache-memory of at least", "found 0 B"});
  expect_refused(run_with_file("--config", "kv_cache_config: {max_tokens: 640}\n",
                               {"--kv-cache-memory", "1M"}),
                 {"--kv-cache-memory 1M contradicts kv_cache_config.max_tokens: 640 of " + path_});
  // Pages take memory when they are used: this run needs few of them.
  EXPECT_THAT(run({"--kv-cache-memory", "900G"}).err,
              HasSubstr("the KV cache that is given does not fit: with the weights"));
  const CommandEnd end = run({"--kv-cache-memory", "1M"});
  EXPECT_THAT(end.err, Not(HasSubstr("does not fit")));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  // The answer does not depend on it.
  EXPECT_EQ(end.out.substr(0, end.out.find("(token")),
            run({}).out.substr(0, end.out.find("(token")));
  // A server must have room for a whole sequence, and says how much that is.
  expect_refused(run_command({.arguments = {"serve", small_model(), "--port", "0",
                                            "--kv-cache-memory", "1K"}}),
                 {"--kv-cache-memory: expected at least", "a sequence of 4096 tokens"});
}

// What a user sees of run/prompt_places_test.cc.
TEST_F(CommandSettings, PlacesOfPrompts) {
  const std::string prompts = directory_.file("prompts");
  const CommandEnd end = run(
      {"--host-cache-size", "64M", "--prompt-cache-dir", prompts, "--prompt-cache-bytes", "1G"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, testing::HasSubstr("prompts kept when they leave it: host 64.0 MiB, disk " +
                                          prompts + " 1.0 GiB"));
  EXPECT_EQ(end.out.substr(0, end.out.find("(token")),
            run({}).out.substr(0, end.out.find("(token")));
  const std::string of_config = "kv_cache_config: {host_cache_size: 67108864}\n";
  EXPECT_THAT(run_with_file("--config", of_config).err,
              testing::HasSubstr("leave it: host 64.0 MiB"));
  EXPECT_THAT(run_with_file("--config", of_config, {"--host-cache-size", "32M"}).err,
              testing::HasSubstr("--host-cache-size 33554432 holds, not "
                                 "kv_cache_config.host_cache_size 67108864 of " +
                                 path_));

  expect_refused(run({"--host-cache-size", "8X"}), {"--host-cache-size", "expected bytes", "8X"});
  expect_refused(run({"--host-cache-size", "1K"}), {"--host-cache-size: expected at least"});
  expect_refused(run({"--host-cache-size", "9000T"}), {"--host-cache-size", "that can be used"});
  expect_refused(run({"--prompt-cache-bytes", "1G"}), {"has no effect without --prompt-cache-dir"});
  expect_refused(run({"--prompt-cache-ttl", "9"}), {"has no effect without --prompt-cache-redis"});
  expect_refused(run({"--prompt-cache-dir", prompts, "--prompt-cache-bytes", "1K"}),
                 {"--prompt-cache-bytes: expected at least"});
  expect_refused(run({"--prompt-cache-dir", path_ + "/x"}), {"the directory cannot be made"});
  expect_refused(run({"--prompt-cache-redis", "127.0.0.1"}), {"--prompt-cache-redis", "redis[s]"});
  expect_error(run({"--prompt-cache-redis", "redis://127.0.0.1:1"}), 1,
               {"--prompt-cache-redis redis://127.0.0.1:1"});
  expect_refused(run({"--prompt-cache-dir", prompts, "--routing-log", directory_.file("log")}),
                 {"--prompt-cache-dir has no effect with --routing-log", "leave one of them out"});
  expect_refused(run_with_file("--config", "kv_cache_config: {enable_block_reuse: false}\n",
                               {"--host-cache-size", "64M"}),
                 {"--host-cache-size", "kv_cache_config.enable_block_reuse: false"});
}

TEST_F(CommandSettings, ModelWithoutTheNameOfItsOption) {
  const CommandEnd named = run({"--prompt", "x"});
  const CommandEnd alone =
      run_command({.arguments = {"generate", "--max-tokens", "4", "--prompt", "x", small_model()}});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  const CommandEnd both = run({"--prompt", "x", small_model()});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(alone.out, ::testing::HasSubstr("--- prompt 0 ---\nx"));
  EXPECT_THAT(both.out, ::testing::HasSubstr("--- prompt 0 ---"));
  EXPECT_EQ(named.exit_code, 0) << named.err;
}

TEST_F(CommandSettings, NothingToDo) {
  const CommandEnd help = run_command({.arguments = {}});
  EXPECT_EQ(help.exit_code, 0) << help.err;
  EXPECT_EQ(help.err, "");
  EXPECT_EQ(help.out, run_command({.arguments = {"--help"}}).out);
  expect_refused(run_command({.arguments = {"balance"}}), {"subcommand"});
  expect_refused(run_command({.arguments = {"generat"}}),
                 {"unknown command 'generat': did you mean generate?"});
  expect_refused(run_command({.arguments = {"balance", "reprot"}}),
                 {"unknown command 'reprot': did you mean report?"});
  expect_refused(run_command({.arguments = {"serve", "--modle", "x"}}),
                 {"unknown option --modle: did you mean --model?"});
  expect_refused(run_command({.arguments = {"run", "model"}}), {"unknown command 'run'", "wideep"});
  expect_refused(run_command({.arguments = {"pull", "org/model"}}), {"hf download"});
  expect_refused(run_command({.arguments = {"generate"}}), {"--model"});
  expect_refused(run_command({.arguments = {"generate", "--model", small_model()}}),
                 {"--prompt", "--prompts"});
}

TEST_F(CommandSettings, PromptsFile) {
  const std::vector<Case> cases = {
      {"", {"no prompt"}},
      {"\n  \n", {"no prompt"}},
      {"{\"prompt\": \"a\"}\n\n{\"prompt\": 3}\n", {"line 3", "prompt", "found 3"}},
      {"{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n", {"line 2", "prompt", "missing"}},
      {"{\"prompt\": \"a\"\n", {"line 1"}},
      {"{\"prompt\": \"a\", \"max_tokens\": 3}\n", {"line 1", "max_tokens", "not known"}},
      {"just text\n", {"line 1"}},
      {"[\"a\"]\n", {"line 1", "an object"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    std::vector<std::string> parts = c.parts;
    parts.push_back(path_);
    expect_refused(run_with_file("--prompts", c.text), parts);
  }
}

TEST_F(CommandSettings, UnknownInstructionSet) {
  CommandOptions options = generate(small_model());
  options.environment = {{"WIDEEP_ISA", "nonsense"}};
  expect_refused(run_command(options), {"WIDEEP_ISA", "nonsense", "ref"});
}

TEST_F(CommandSettings, UnderscoresAreDashes) {
  const auto text = [&](const std::string& option) {
    const CommandEnd end = run({option, "--ranks=2"});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return end.out.substr(0, end.out.find("wall time"));
  };
  EXPECT_EQ(text("--max_num_tokens=5"), text("--max-num-tokens=5"));
}

}  // namespace
}  // namespace wideep::tests
