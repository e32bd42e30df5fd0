// SPDX-License-Identifier: Apache-2.0
#include "advise_disaggregated.h"

#include <fmt/format.h>

#include "advise/config_files.h"
#include "base/log.h"
#include "base/try.h"
#include "formats/files.h"
#include "recordings/balancer_yaml.h"

namespace wideep::tools {
namespace {

using advise::Candidate;
using advise::MatchedServers;
using advise::PrefillServer;

std::string prefill_text(const std::vector<PrefillServer>& servers) {
  std::string text =
      "servers that compute prompts\n"
      " requests/s  prompts     TTFT  ranks\n"
      "     a rank  a round       ms         layout\n";
  for (const PrefillServer& each : servers) {
    const cost::Layout& layout = each.layout;
    text += fmt::format("{:11.2f} {:8} {:8.0f} {:6}  {}\n", each.requests_per_rank(),
                        each.prompts * layout.num_batches() * layout.stages, each.ttft() * 1e3,
                        layout.num_ranks(), text_of(layout));
  }
  return text;
}

std::string generation_text(const char* title, const std::vector<Candidate>& servers) {
  if (servers.empty()) return "";
  std::string text = fmt::format(
      "\nservers that generate{}\n"
      " tokens/s  tokens/s     TPOT requests  ranks\n"
      "   a rank    a user       ms                 layout\n",
      title);
  for (const Candidate& each : servers) {
    text += fmt::format("{:9.1f} {:9.1f} {:8.1f} {:8} {:6}  {}\n", each.tokens_per_rank,
                        each.tokens_per_user, each.tpot * 1e3, each.requests(),
                        each.layout.num_ranks(), text_of(each.layout));
  }
  return text;
}

constexpr const char* kMatchedHeading =
    " tokens/s  tokens/s     TPOT     TTFT          aggregated   gain\n"
    "   a rank    a user       ms       ms  ranks     tokens/s         servers\n";

std::string matched_row(const MatchedServers& each) {
  const std::string beside = each.aggregated > 0.0
                                 ? fmt::format("{:12.1f} {:5.2f}×", each.aggregated, each.gain())
                                 : fmt::format("{:>12} {:>6}", "none", "");
  return fmt::format("{:9.1f} {:9.1f} {:8.1f} {:8.0f} {:6} {}  {}\n", each.tokens_per_rank,
                     each.tokens_per_user(), each.generation.tpot * 1e3, each.ttft() * 1e3,
                     each.ratio.ranks, beside, name_of(each));
}

nlohmann::ordered_json json_of(const cost::Layout& layout) {
  return {{"ranks", layout.num_ranks()},    {"ep", layout.ep},
          {"moe_tp", layout.expert_slices}, {"pp", layout.stages},
          {"cp", layout.context},           {"attention_dp", layout.attention_dp},
          {"num_slots", layout.num_slots},  {"dtype", kernels::weight_format_name(layout.format)},
          {"drafts", layout.drafts}};
}

nlohmann::ordered_json json_of(const PrefillServer& each) {
  nlohmann::ordered_json json = json_of(each.layout);
  json["prompts"] = each.prompts * each.layout.num_batches() * each.layout.stages;
  json["requests_per_second"] = each.requests;
  json["requests_per_second_per_rank"] = each.requests_per_rank();
  json["ttft_ms"] = each.ttft() * 1e3;
  json["transfer_ms"] = each.transfer * 1e3;
  json["transfer_exposed_ms"] = each.exposed() * 1e3;
  json["memory_bytes"] = each.memory;
  json["relative_error"] = each.error;
  return json;
}

nlohmann::ordered_json json_of(const Candidate& each) {
  nlohmann::ordered_json json = json_of(each.layout);
  json["requests"] = each.requests();
  json["tokens_per_second_per_rank"] = each.tokens_per_rank;
  json["tokens_per_second_per_user"] = each.tokens_per_user;
  json["tpot_ms"] = each.tpot * 1e3;
  json["longest_ms"] = each.longest * 1e3;
  json["memory_bytes"] = each.memory;
  json["relative_error"] = each.error;
  return json;
}

nlohmann::ordered_json json_of(const MatchedServers& each) {
  nlohmann::ordered_json json = {{"name", name_of(each)},
                                 {"ranks", each.ratio.ranks},
                                 {"num_context_servers", each.ratio.prefill},
                                 {"num_generation_servers", each.ratio.generation},
                                 {"requests", each.generation.requests() * each.ratio.generation},
                                 {"requests_per_second", each.ratio.requests},
                                 {"tokens_per_second_per_rank", each.tokens_per_rank},
                                 {"tokens_per_second_per_rank_of_exact_ratio", each.exact},
                                 {"tokens_per_second_per_user", each.tokens_per_user()},
                                 {"tpot_ms", each.generation.tpot * 1e3},
                                 {"ttft_ms", each.ttft() * 1e3},
                                 {"aggregated_tokens_per_second_per_rank", nullptr},
                                 {"gain", nullptr},
                                 {"context", json_of(each.prefill)},
                                 {"generation", json_of(each.generation)}};
  if (each.aggregated > 0.0) {
    json["aggregated_tokens_per_second_per_rank"] = each.aggregated;
    json["gain"] = each.gain();
  }
  return json;
}

template <typename Row>
nlohmann::ordered_json rows_of(const std::vector<Row>& rows) {
  auto json = nlohmann::ordered_json::array();
  for (const Row& row : rows) json.push_back(json_of(row));
  return json;
}

}  // namespace

std::string disaggregated_text(const advise::DisaggregatedAdvice& advice) {
  std::string text = prefill_text(advice.prefill);
  const bool has_drafts = !advice.drafting.empty();
  text += generation_text(has_drafts ? ", without drafts" : "", advice.generation);
  text += generation_text(", with drafts", advice.drafting);
  if (!advice.pareto.empty()) text += fmt::format("\nmatched\n{}", kMatchedHeading);
  for (const MatchedServers& each : advice.pareto) text += matched_row(each);
  if (advice.best) {
    const MatchedServers& best = *advice.best;
    text += fmt::format("\nrecommended of these\n{}{}", kMatchedHeading, matched_row(best));
    text +=
        fmt::format("  prompts    {}\n  answers    {}, {} requests\n", text_of(best.prefill.layout),
                    text_of(best.generation.layout), best.generation.requests());
  }
  for (const std::string& reason : advice.reasons) text += "because      " + reason + "\n";
  return text;
}

nlohmann::ordered_json disaggregated_json(const advise::DisaggregatedAdvice& advice) {
  nlohmann::ordered_json json = {{"prompt_bytes", advice.prompt_bytes},
                                 {"context", rows_of(advice.prefill)},
                                 {"generation", rows_of(advice.generation)},
                                 {"generation_with_drafts", rows_of(advice.drafting)},
                                 {"pareto", rows_of(advice.pareto)},
                                 {"recommended", nullptr},
                                 {"reasons", advice.reasons}};
  if (advice.best) json["recommended"] = json_of(*advice.best);
  return json;
}

Status write_disaggregated(const std::string& directory, const advise::Question& question,
                           const MatchedServers& servers) {
  const advise::DisaggregatedPaths paths{
      .config = directory + "/disagg_config.yaml",
      .context_balancer = directory + "/context_load_balancer.yaml",
      .generation_balancer = directory + "/generation_load_balancer.yaml"};
  WIDEEP_TRY_ASSIGN(const advise::DisaggregatedFiles files,
                    advise::disaggregated_files(question, servers, paths));
  if (question.config.has_experts()) {
    WIDEEP_TRY(recordings::write_balancer_yaml(paths.context_balancer, files.context));
    WIDEEP_TRY(recordings::write_balancer_yaml(paths.generation_balancer, files.generation));
  }
  WIDEEP_TRY(formats::write_file(paths.config, files.config));
  log::info("wrote {}; wideep disaggregated -c {}", paths.config, paths.config);
  return {};
}

}  // namespace wideep::tools
