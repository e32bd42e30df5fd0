// SPDX-License-Identifier: Apache-2.0
//
// wideep figures ngram: all figures of the blog on n-gram speculation, in one run.
//
//   figures 3, 6   speed-up of the runtime of the first and of the second turn, by batch and sizes
//   figure 4       how many tokens a step yields; figure 5, over the iterations
//   figure 7       the same of translations, with single requests
//   both tables    accepted lengths over the sizes of n-grams
//
// The text's own numbers, wherever it prints one, stand beside those of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/try.h"
#include "commands.h"
#include "figures/figure.h"
#include "figures/translation_prompts.h"
#include "held_out_prompts.h"
#include "measure/model/ngram_run.h"
#include "prompts_file.h"
#include "run_options.h"

namespace wideep::tools {
namespace {

using measure::DraftedRun;
using measure::NgramCell;
using measure::NgramReport;
using measure::NgramSizes;
using measure::RequestStep;
using measure::TranslationCell;

constexpr int kSingleRequests = 5;  // of figure 7

struct Options {
  measure::NgramPlan plan;
  RankRunOptions ranks;
  std::string prompts, translations;
  std::vector<std::string> sizes = {"3:5", "5:5", "5:3"};
  std::vector<std::string> translation_sizes = {"5:7",  "3:7",  "3:9",  "5:9",  "3:11",
                                                "5:11", "3:13", "5:13", "3:15", "5:15",
                                                "5:17", "5:19", "5:21", "5:23"};
  FigureOutput output;
};

// ---- the text's numbers ----

struct PublishedLength {
  NgramSizes sizes;
  double first = 0.0, second = 0.0;
};
constexpr PublishedLength kLengths[] = {
    {{3, 5}, 1.37, 1.66}, {{5, 5}, 1.40, 1.77}, {{5, 3}, 1.37, 1.66}};

struct PublishedTranslation {
  NgramSizes sizes;
  double length = 0.0;
};
constexpr PublishedTranslation kTranslations[] = {
    {{3, 7}, 3.44},   {{5, 7}, 3.62},   {{3, 9}, 3.708},  {{5, 9}, 3.925},  {{3, 11}, 3.878},
    {{5, 11}, 4.092}, {{3, 13}, 4.079}, {{5, 13}, 4.214}, {{3, 15}, 4.198}, {{5, 15}, 4.36},
    {{5, 17}, 4.43},  {{5, 19}, 4.55},  {{5, 21}, 4.59},  {{5, 23}, 4.73}};

struct PublishedSpeedUp {
  NgramSizes sizes;
  int batch = 0;
  double percent = 0.0;  // of the second turn
};
constexpr PublishedSpeedUp kSpeedUps[] = {
    {{3, 5}, 1, 96.13}, {{3, 5}, 4, 63.99}, {{5, 3}, 32, 33.06}};

std::string name_of(const NgramSizes& sizes) {
  return fmt::format("k = {}, v = {}", sizes.k, sizes.v);
}

// ---- options ----

Result<NgramSizes> read_sizes(const std::string& option, const std::string& text) {
  NgramSizes sizes{.k = 0, .v = 0};
  const size_t colon = text.find(':');
  const auto read = [](std::string_view part, int* value) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *value);
    return error == std::errc() && end == part.data() + part.size() && *value >= 1 && *value <= 64;
  };
  if (colon == std::string::npos || !read(std::string_view(text).substr(0, colon), &sizes.k) ||
      !read(std::string_view(text).substr(colon + 1), &sizes.v)) {
    return invalid_input(fmt::format(
        "{}: expected tokens of a pattern and drafts, each 1 to 64, as 3:5; found \"{}\"", option,
        text));
  }
  return sizes;
}

Result<std::vector<NgramSizes>> read_all_sizes(const std::string& option,
                                               const std::vector<std::string>& texts) {
  std::vector<NgramSizes> all;
  for (const std::string& text : texts) {
    WIDEEP_TRY_ASSIGN(const NgramSizes sizes, read_sizes(option, text));
    if (std::ranges::find(all, sizes) == all.end()) all.push_back(sizes);
  }
  return all;
}

Result<measure::NgramPlan> plan_of(const Options& options) {
  measure::NgramPlan plan = options.plan;
  WIDEEP_TRY_ASSIGN(plan.sizes, read_all_sizes("--sizes", options.sizes));
  WIDEEP_TRY_ASSIGN(plan.translation_sizes,
                    read_all_sizes("--translation-sizes", options.translation_sizes));
  WIDEEP_TRY(refuse_recording(options.ranks.record, "figures ngram",
                              "it runs once for each batch size and each sizes of drafts"));
  WIDEEP_TRY(apply_rank_run_options(options.ranks, true, &plan.run));
  const parallel::ParallelConfig& parallel = plan.run.parallel;
  if (parallel.speculative_config) {
    return invalid_input(fmt::format(
        "{}: speculative_config: has no effect here; choose with --sizes and --translation-sizes",
        parallel.name));
  }
  if (parallel.max_batch_size) {
    return invalid_input(fmt::format(
        "{}: has no effect here; choose with --batch",
        options.ranks.max_batch_size ? "--max-batch-size" : parallel.name + ": max_batch_size"));
  }
  if (options.prompts.empty()) {
    for (std::string& prompt : held_out_prompts()) plan.conversations.push_back({prompt, ""});
  } else {
    WIDEEP_TRY_ASSIGN(const std::vector<Turns> read, read_conversations(options.prompts));
    for (const Turns& turns : read) {
      plan.conversations.push_back({turns[0], turns.size() > 1 ? turns[1] : ""});
    }
  }
  plan.translations = translation_prompts();
  if (!options.translations.empty()) {
    WIDEEP_TRY_ASSIGN(plan.translations, read_prompts(options.translations));
  }
  std::ranges::sort(plan.batches);
  plan.batches.erase(std::ranges::unique(plan.batches).begin(), plan.batches.end());
  return plan;
}

// ---- charts ----

const NgramCell& cell_of(const NgramReport& report, int turn, int batch, const NgramSizes& sizes) {
  return *std::ranges::find_if(report.turns, [&](const NgramCell& cell) {
    return cell.turn == turn && cell.batch == batch && cell.sizes == sizes;
  });
}

double percent_of(double ratio) { return 100.0 * (ratio - 1.0); }

Chart speed_ups(const measure::NgramPlan& plan, const NgramReport& report, int turn) {
  Chart chart{.kind = Chart::kBars,
              .title = fmt::format("Figure {}: speed-up of the {} turn", turn == 1 ? 3 : 6,
                                   turn == 1 ? "first" : "second"),
              .hint =
                  "Runtime of all requests without drafts over that with them, minus 1; median "
                  "of the rounds.",
              .x_label = "requests at the same time",
              .y_label = "speed-up, %"};
  for (const int batch : plan.batches) chart.categories.push_back(std::to_string(batch));
  for (const NgramSizes& sizes : plan.sizes) {
    Series series{.name = name_of(sizes)};
    for (const int batch : plan.batches) {
      series.y.push_back(percent_of(cell_of(report, turn, batch, sizes).ratio()));
    }
    chart.series.push_back(std::move(series));
  }
  if (turn == 1) return chart;
  for (const NgramSizes& sizes : plan.sizes) {
    Series series{.name = "published, " + name_of(sizes), .published = true};
    bool any = false;
    for (const int batch : plan.batches) {
      const auto* found = std::ranges::find_if(kSpeedUps, [&](const PublishedSpeedUp& each) {
        return each.sizes == sizes && each.batch == batch;
      });
      any = any || found != std::end(kSpeedUps);
      series.y.push_back(found != std::end(kSpeedUps) ? found->percent : kNoNumber);
    }
    if (any) chart.series.push_back(std::move(series));
  }
  return chart;
}

// Shares of steps by the tokens that they have yielded, in percent.
std::vector<double> shares_of(const DraftedRun& run, int max) {
  const std::vector<int64_t> counts = run.lengths(max);
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  std::vector<double> shares;
  for (int length = 1; length <= max; ++length) {
    shares.push_back(all > 0 ? 100.0 * static_cast<double>(counts[static_cast<size_t>(length)]) /
                                   static_cast<double>(all)
                             : 0.0);
  }
  return shares;
}

Chart distribution(const std::string& title, const NgramSizes& sizes) {
  Chart chart{.kind = Chart::kBars,
              .title = title,
              .hint = "Accepted length 1: none of the drafts was right, or there was none.",
              .x_label = "accepted length, tokens",
              .y_label = "% of the steps of requests"};
  for (int length = 1; length <= sizes.v + 1; ++length) {
    chart.categories.push_back(std::to_string(length));
  }
  return chart;
}

// Of each iteration the mean accepted length of its requests. The text draws the fainter, the fewer
// requests an iteration has; here they are three series.
Chart over_iterations(const DraftedRun& run, int turn) {
  std::map<int64_t, std::pair<int, int>> iterations;  // → requests, tokens
  int most = 0;
  for (const auto& request : run.steps) {
    for (const RequestStep& step : request) {
      auto& [requests, tokens] = iterations[step.iteration];
      most = std::max(most, ++requests);
      tokens += step.tokens;
    }
  }
  std::array<Series, 3> series = {Series{.name = "more than 2/3 of the most requests"},
                                  Series{.name = "1/3 to 2/3"}, Series{.name = "up to 1/3"}};
  for (const auto& [iteration, each] : iterations) {
    const auto& [requests, tokens] = each;
    Series& of = series[3 * requests > 2 * most ? 0 : 3 * requests > most ? 1 : 2];
    of.x.push_back(static_cast<double>(iteration));
    of.y.push_back(static_cast<double>(tokens) / requests);
  }
  Chart chart{.kind = Chart::kPoints,
              .title = fmt::format("Figure 5: accepted length over the iterations, {} turn",
                                   turn == 1 ? "first" : "second"),
              .hint = fmt::format("Mean over the requests of an iteration, at most {}.", most),
              .x_label = "iteration",
              .y_label = "accepted length, tokens"};
  for (Series& each : series) {
    if (!each.x.empty()) chart.series.push_back(std::move(each));
  }
  return chart;
}

Chart single_requests(const DraftedRun& run) {
  Chart chart{.kind = Chart::kLines,
              .title = "Figure 7, right: accepted length of single requests",
              .x_label = "step of the request",
              .y_label = "accepted length, tokens"};
  const size_t count = std::min<size_t>(kSingleRequests, run.steps.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t request = i * run.steps.size() / count;
    Series series{.name = fmt::format("request {}", request)};
    for (const RequestStep& step : run.steps[request]) {
      series.x.push_back(static_cast<double>(series.x.size() + 1));
      series.y.push_back(step.tokens);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

void add_translations(const NgramReport& report, Figure* figure) {
  if (report.translations.empty()) return;
  const TranslationCell& shown = report.translations.front();
  Chart chart = distribution(
      fmt::format("Figure 7, left: tokens of a step, translations, {}", name_of(shown.sizes)),
      shown.sizes);
  chart.series.push_back({.name = "translations", .y = shares_of(shown.run, shown.sizes.v + 1)});
  if (shown.sizes == NgramSizes{5, 7}) {
    Series published{.name = "published: a third each", .published = true};
    published.y.assign(chart.categories.size(), kNoNumber);
    published.y.front() = published.y.back() = 100.0 / 3;
    chart.series.push_back(std::move(published));
  }
  figure->charts.push_back(std::move(chart));
  figure->charts.push_back(single_requests(shown.run));

  Chart lengths{.kind = Chart::kPoints,
                .title = "Accepted length of translations",
                .x_label = "v, most drafts",
                .y_label = "accepted length, tokens"};
  std::map<int, std::pair<Series, Series>> by_k;  // ours, published
  Table table{
      .title = fmt::format("Accepted length of translations, {} requests", shown.run.num_requests),
      .columns = {"k", "v", "AL", "published AL"}};
  for (const TranslationCell& cell : report.translations) {
    const auto* found = std::ranges::find(kTranslations, cell.sizes, &PublishedTranslation::sizes);
    auto& [ours, published] = by_k[cell.sizes.k];
    ours.x.push_back(cell.sizes.v);
    ours.y.push_back(cell.run.accepted_length());
    nlohmann::ordered_json text = nullptr;
    if (found != std::end(kTranslations)) {
      text = found->length;
      published.x.push_back(cell.sizes.v);
      published.y.push_back(found->length);
    }
    table.rows.push_back({cell.sizes.k, cell.sizes.v, cell.run.accepted_length(), text});
  }
  for (auto& [k, both] : by_k) {
    both.first.name = fmt::format("k = {}", k);
    both.second.name = fmt::format("published, k = {}", k);
    both.second.published = true;
    lengths.series.push_back(std::move(both.first));
    if (!both.second.x.empty()) lengths.series.push_back(std::move(both.second));
  }
  figure->charts.push_back(std::move(lengths));
  std::ranges::sort(table.rows, {}, [](const auto& row) {
    return std::pair(row[1].template get<int>(), row[0].template get<int>());
  });
  figure->tables.push_back(std::move(table));
}

Table length_table(const measure::NgramPlan& plan, const NgramReport& report) {
  const int batch = plan.batches.back();
  Table table{
      .title = fmt::format("Accepted length of conversations, {} of them, {} at once",
                           cell_of(report, 1, batch, plan.sizes[0]).last.num_requests, batch),
      .columns = {"k", "v", "AL turn 1", "published AL turn 1", "AL turn 2",
                  "published AL turn 2"}};
  for (const NgramSizes& sizes : plan.sizes) {
    const auto* found = std::ranges::find(kLengths, sizes, &PublishedLength::sizes);
    const bool is_known = found != std::end(kLengths);
    const auto published = [&](double PublishedLength::* turn) {
      return is_known ? nlohmann::ordered_json(found->*turn) : nlohmann::ordered_json(nullptr);
    };
    table.rows.push_back({sizes.k, sizes.v, cell_of(report, 1, batch, sizes).last.accepted_length(),
                          published(&PublishedLength::first),
                          cell_of(report, 2, batch, sizes).last.accepted_length(),
                          published(&PublishedLength::second)});
  }
  return table;
}

Table runtime_table(const NgramReport& report) {
  Table table{.title = "Runtime of all requests, s, and its speed-up, % (lowest and highest round)",
              .columns = {"turn", "at once", "requests", "k", "v", "without", "with", "speed-up",
                          "lowest", "highest", "AL"}};
  for (const NgramCell& cell : report.turns) {
    const auto [low, high] = std::ranges::minmax(cell.ratios);
    table.rows.push_back({cell.turn, cell.batch, cell.last.num_requests, cell.sizes.k, cell.sizes.v,
                          cell.without, cell.with, percent_of(cell.ratio()), percent_of(low),
                          percent_of(high), cell.last.accepted_length()});
  }
  return table;
}

std::vector<std::string> notes_of(const measure::NgramPlan& plan, const NgramReport& report) {
  std::vector<std::string> notes = {
      fmt::format("{}, {} tokens an answer, {} rounds; greedy, and the answers with drafts are "
                  "those without, token for token",
                  plan.run.model_dir, plan.max_tokens, plan.rounds),
      "The text: Llama 4 Scout in FP8 on 8 B200 (TP 8), two turns of Magpie, 20 requests for each "
      "place of a batch; its figure 3 has no numbers, its highlights say 10 to 60 %",
      "A step without a draft counts as accepted length 1, as in the text"};
  for (const int batch : plan.batches) {
    const int had = cell_of(report, 1, batch, plan.sizes[0]).last.num_requests;
    const int wanted = batch * plan.requests_per_place;
    if (had == wanted) continue;
    notes.push_back(
        fmt::format("{} at once: {} requests, not {}: there are no more conversations, and none is "
                    "asked twice, since the pool would know its answer",
                    batch, had, wanted));
  }
  return notes;
}

Figure figure_of(const measure::NgramPlan& plan, const NgramReport& report) {
  Figure figure{.name = "ngram",
                .title = "N-gram speculation: what it accepts, and what that brings",
                .source = "N-gram blog, figures 3 to 7 and both tables"};
  for (const int turn : {1, 2}) figure.charts.push_back(speed_ups(plan, report, turn));
  const int batch = plan.batches.back();
  const NgramSizes& sizes = plan.sizes.front();
  Chart lengths = distribution(fmt::format("Figure 4: tokens of a step, conversations, {}, {} at "
                                           "once",
                                           name_of(sizes), batch),
                               sizes);
  for (const int turn : {1, 2}) {
    lengths.series.push_back(
        {.name = turn == 1 ? "first turn" : "second turn",
         .y = shares_of(cell_of(report, turn, batch, sizes).last, sizes.v + 1)});
  }
  figure.charts.push_back(std::move(lengths));
  for (const int turn : {1, 2}) {
    figure.charts.push_back(over_iterations(cell_of(report, turn, batch, sizes).last, turn));
  }
  figure.tables = {length_table(plan, report)};
  add_translations(report, &figure);
  figure.tables.push_back(runtime_table(report));
  figure.notes = notes_of(plan, report);
  return figure;
}

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const measure::NgramPlan plan, plan_of(options));
  WIDEEP_TRY_ASSIGN(auto directories, prepare_figure(options.output));
  const auto measured = [&] {
    std::optional<base::Progress> progress;
    return measure::measure_ngram(plan, [&](int, int all) {
      if (!progress) progress.emplace("measuring", all, "runs");
      progress->step();
    });
  };
  WIDEEP_TRY_ASSIGN(const NgramReport report, measured());
  return show_figure(figure_of(plan, report), options.output);
}

}  // namespace

void add_figure_ngram_command(command_line::Command figures, Status* status) {
  const command_line::Command command = figures.add_command(
      "ngram", "What n-gram drafts accept and bring: all figures of the N-gram blog in one run");
  auto options = std::make_shared<Options>();
  options->plan.batches = {1, 4, 32};
  command
      .add_option("--model", options->plan.run.model_dir,
                  "Model directory (Hugging Face layout), or a GGUF file")
      .model()
      .required();
  add_rank_run_options(command, &options->ranks);
  command
      .add_option("--prompts", options->prompts,
                  "JSONL file of conversations, with \"turns\" or a \"prompt\" in each line; "
                  "empty: sentences of a text in wideep")
      .path();
  command
      .add_option("--translations", options->translations,
                  "JSONL file with a \"prompt\" in each line; empty: short translations into "
                  "German")
      .path();
  command
      .add_option("--sizes", options->sizes,
                  "Sizes for conversations, tokens of a pattern and drafts: K:V,K:V; figures 4 and "
                  "5 show the first")
      .separate_values_by(',')
      .show_default();
  command
      .add_option("--translation-sizes", options->translation_sizes,
                  "The same for translations; figure 7 shows the first")
      .separate_values_by(',')
      .show_default();
  command.add_option("--batch", options->plan.batches, "Requests at the same time: A,B,C")
      .separate_values_by(',')
      .range(1, 4096)
      .show_default();
  command
      .add_option("--requests", options->plan.requests_per_place,
                  "Requests of a run for each that is served at the same time")
      .range(1, 1 << 16)
      .show_default();
  command.add_option("--max-tokens", options->plan.max_tokens, "Tokens of an answer")
      .range(2, 1 << 20)
      .show_default();
  command.add_option("--rounds", options->plan.rounds, "Runs of each, in turn")
      .range(1, 1000)
      .show_default();
  add_figure_output(command, &options->output);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
