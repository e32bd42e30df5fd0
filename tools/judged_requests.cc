// SPDX-License-Identifier: Apache-2.0
#include "judged_requests.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/progress.h"
#include "base/try.h"

namespace wideep::tools {
namespace {

using online::DividedTrace;
using online::RequestTrace;

// As which a file of ids without requests is taken: as long as answers are.
constexpr int64_t kRequestTokens = 256;

online::NextIteration iterations_of(const RequestTrace& trace, const online::StreamOptions& options,
                                    base::Progress* progress) {
  auto stream = std::make_shared<online::RequestStream>(&trace, options);
  return [stream, progress](online::Iteration* iteration) {
    progress->step();
    return stream->next(iteration);
  };
}

}  // namespace

Result<DividedTrace> read_divided_ids(const StatisticsOptions& options, const std::string& holdout,
                                      const recordings::TraceShape& shape) {
  const std::string& path = options.path;
  WIDEEP_TRY_ASSIGN(RequestTrace trace, online::read_token_trace(path, shape, kRequestTokens));
  const std::optional<double> fraction =
      holdout.empty() ? kHeldOutRequests : holdout_fraction(holdout);
  if (fraction) {
    Result<DividedTrace> divided = online::hold_out_requests(std::move(trace), *fraction);
    if (!divided.ok()) return divided.status().at(path + ": --holdout");
    return divided;
  }
  if (!is_trace(holdout)) {
    return invalid_input(fmt::format(
        "--holdout: {}: expected a trace as --stats is (.u8 or .u16), or a fraction", holdout));
  }
  Result<RequestTrace> later = online::read_token_trace(holdout, shape, kRequestTokens);
  if (!later.ok()) return later.status().at("--holdout");
  return DividedTrace{.earlier = std::move(trace), .later = std::move(later).value()};
}

std::vector<residency::BudgetHits> judge_requests(const DividedTrace& trace,
                                                  const online::StreamOptions& options,
                                                  std::span<const int> budgets) {
  base::Progress progress(
      "judging",
      online::num_iterations(trace.earlier, options) + online::num_iterations(trace.later, options),
      "iterations");
  return residency::judge_iterations({.num_layers = trace.earlier.shape.num_layers,
                                      .num_experts = trace.earlier.shape.num_experts,
                                      .learned = iterations_of(trace.earlier, options, &progress),
                                      .judged = iterations_of(trace.later, options, &progress)},
                                     budgets, {});
}

}  // namespace wideep::tools
