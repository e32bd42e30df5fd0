// SPDX-License-Identifier: Apache-2.0
#include "advise/config_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/try.h"

namespace wideep::advise {
namespace {

// What a server of this layout reads. balancer_path: "" for a dense model.
std::string server_keys(const Question& question, const cost::Layout& layout, int batch,
                        const std::string& balancer_path) {
  const Workload& workload = question.workload;
  std::string text = fmt::format("tensor_parallel_size: {}\n", layout.tensor_ranks());
  if (layout.context > 1) text += fmt::format("context_parallel_size: {}\n", layout.context);
  if (layout.stages > 1) text += fmt::format("pipeline_parallel_size: {}\n", layout.stages);
  if (!balancer_path.empty()) {
    text += fmt::format("moe_expert_parallel_size: {}\n", layout.ep);
    text += fmt::format("moe_tensor_parallel_size: {}\n", layout.expert_slices);
  }
  text += fmt::format("enable_attention_dp: {}\n", layout.attention_dp);
  text += fmt::format("max_batch_size: {}\n", batch);
  text += fmt::format("max_num_tokens: {}\n", std::max(question.choices.max_num_tokens, batch));
  text += fmt::format("max_seq_len: {}\n", workload.isl + workload.osl);
  text += fmt::format("kv_cache_config: {{dtype: {}}}\n",
                      layout.cache == Dtype::kF8E4M3 ? "FP8" : "BF16");
  if (layout.drafts > 0) {
    text += fmt::format("speculative_config: {{decoding_type: SA, max_draft_len: {}}}\n",
                        layout.drafts);
  }
  if (!balancer_path.empty()) {
    text += fmt::format("moe_config: {{load_balancer: {}}}\n", balancer_path);
  }
  return text;
}

std::string parallel_text(const Question& question, const Candidate& candidate,
                          const std::string& balancer_path) {
  const cost::Layout& layout = candidate.layout;
  return fmt::format(
             "# Written by `wideep advise`: {}.\n"
             "# Predicted: {:.1f} ms between tokens, {:.0f} ms to the first, {:.0f} tokens/s of a "
             "rank.\n",
             text_of(layout), candidate.tpot * 1e3, candidate.ttft * 1e3,
             candidate.tokens_per_rank) +
         server_keys(question, layout, candidate.batch, balancer_path);
}

// Of a model with experts.
Result<balance::ModelPlacement> placement_of(const Question& question, const cost::Layout& layout,
                                             int layer_updates) {
  const balance::ModelLoad& load = question.planned;
  const bool weighted_shares = question.choices.weighted_shares;
  balance::ModelPlacement placement;
  placement.num_slots = layout.num_slots;
  placement.share_update =
      weighted_shares ? balance::ShareUpdate::kIteration : balance::ShareUpdate::kWindow;
  placement.layer_updates_per_iter = layer_updates;
  const balance::PlanShape shape{
      .num_experts = load.num_experts, .ep_size = layout.ep, .num_slots = layout.num_slots};
  const balance::PlannerOptions options{.split = weighted_shares ? balance::Split::kWeighted
                                                                 : balance::Split::kEqual};
  WIDEEP_TRY_ASSIGN(const auto planner, balance::make_planner("wideep", shape, options));
  balance::LayerPlan plan;
  for (size_t i = 0; i < load.layers.size(); ++i) {
    planner->plan(load.load[i], &plan);
    placement.layers.emplace(load.layers[i], plan.placement);
  }
  return placement;
}

struct Section {
  const char* name;
  int num_servers;
  int first_port;
  int64_t kept_tokens;  // of a server: pages that others take, or that came from them
  std::string keys;     // of a server
};

std::string section_text(const Section& section) {
  std::string urls;
  for (int i = 0; i < section.num_servers; ++i) {
    urls += fmt::format("{}\"localhost:{}\"", i > 0 ? ", " : "", section.first_port + i);
  }
  std::string text = fmt::format("{}:\n  num_instances: {}\n  urls: [{}]\n", section.name,
                                 section.num_servers, urls);
  text +=
      fmt::format("  cache_transceiver_config: {{backend: DEFAULT, max_tokens_in_buffer: {}}}\n",
                  section.kept_tokens);
  std::istringstream keys(section.keys);
  for (std::string line; std::getline(keys, line);) text += "  " + line + "\n";
  return text;
}

std::string disaggregated_heading(const MatchedServers& servers, const std::string& path) {
  const std::string_view format = kernels::weight_format_name(servers.prefill.layout.format);
  return fmt::format(
             "# Written by `wideep advise --disaggregated`: {}.\n"
             "# Predicted: {:.1f} ms between tokens, {:.0f} ms to the first, {:.0f} tokens/s of a "
             "rank.\n",
             name_of(servers), servers.generation.tpot * 1e3, servers.ttft() * 1e3,
             servers.tokens_per_rank) +
         fmt::format(
             "# Each server, where its url says: wideep serve --model DIR --port PORT --dtype {0}\n"
             "# --role prefill --config {1}:context_servers, or --role decode and\n"
             "# :generation_servers; of several machines also --host HOST --page-key-file FILE.\n"
             "# Then: wideep disaggregated -c {1}\n"
             "hostname: localhost\n"
             "port: 8000\n",
             format, path);
}

}  // namespace

Result<ConfigFiles> config_files(const Question& question, const Candidate& candidate,
                                 int layer_updates, const std::string& balancer_path) {
  ConfigFiles files;
  const bool has_experts = question.config.has_experts();
  if (has_experts) {
    WIDEEP_TRY_ASSIGN(files.placement, placement_of(question, candidate.layout, layer_updates));
  }
  files.parallel = parallel_text(question, candidate, has_experts ? balancer_path : "");
  return files;
}

Result<DisaggregatedFiles> disaggregated_files(const Question& question,
                                               const MatchedServers& servers,
                                               const DisaggregatedPaths& paths) {
  const cost::Layout &prompts = servers.prefill.layout, &answers = servers.generation.layout;
  DisaggregatedFiles files;
  const bool has_experts = question.config.has_experts();
  if (has_experts) {
    WIDEEP_TRY_ASSIGN(files.context, placement_of(question, prompts, 0));
    WIDEEP_TRY_ASSIGN(files.generation, placement_of(question, answers, 0));
  }
  constexpr int kFirstPort = 8001;
  // The cache has room for as many, and pages of the round before are still on their way.
  const int batch = 2 * servers.prefill.prompts * prompts.stages;
  const ServerRatio& ratio = servers.ratio;
  const int64_t sent = int64_t{batch} * prompts.num_batches() * question.workload.isl;
  files.config =
      disaggregated_heading(servers, paths.config) +
      section_text({.name = "context_servers",
                    .num_servers = ratio.prefill,
                    .first_port = kFirstPort,
                    .kept_tokens = sent,
                    .keys = server_keys(question, prompts, batch,
                                        has_experts ? paths.context_balancer : "")}) +
      section_text({.name = "generation_servers",
                    .num_servers = ratio.generation,
                    .first_port = kFirstPort + ratio.prefill,
                    .kept_tokens = (sent * ratio.prefill + ratio.generation - 1) / ratio.generation,
                    .keys = server_keys(question, answers, servers.generation.batch,
                                        has_experts ? paths.generation_balancer : "")});
  return files;
}

}  // namespace wideep::advise
