// SPDX-License-Identifier: Apache-2.0
#include "measure/serving/throughput_report.h"

#include <algorithm>

namespace wideep::measure {
namespace {

double ms_between(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-6;
}

// Values over requests or tokens, from which the percentiles are computed.
struct Values {
  std::vector<double> latency, ttft, tpot, itl, user_speed;

  void add(const RequestTimes& request) {
    const std::vector<int64_t>& tokens = request.token_ns;
    latency.push_back(ms_between(request.start_ns, tokens.back()));
    ttft.push_back(ms_between(request.start_ns, tokens.front()));
    for (size_t i = 1; i < tokens.size(); ++i) {
      itl.push_back(ms_between(tokens[i - 1], tokens[i]));
    }
    const double rest_ms = ms_between(tokens.front(), tokens.back());
    if (rest_ms <= 0.0) return;  // one token: no time per token after the first
    const auto rest = static_cast<double>(tokens.size() - 1);
    tpot.push_back(rest_ms / rest);
    user_speed.push_back(rest / rest_ms * 1e3);
  }
};

}  // namespace

ThroughputReport report_of(const std::vector<RequestTimes>& requests) {
  ThroughputReport report{.num_requests = static_cast<int>(requests.size()),
                          .issue_rate_req_s = {},
                          .latency_ms = {},
                          .ttft_ms = {},
                          .tpot_ms = {},
                          .itl_ms = {},
                          .user_speed = {}};
  if (requests.empty()) return report;
  Values values;
  int64_t first_ns = INT64_MAX, last_start_ns = 0, end_ns = 0;
  for (const RequestTimes& request : requests) {
    values.add(request);
    report.input_tokens += request.input_tokens;
    report.output_tokens += static_cast<int64_t>(request.token_ns.size());
    first_ns = std::min(first_ns, request.start_ns);
    last_start_ns = std::max(last_start_ns, request.start_ns);
    end_ns = std::max(end_ns, request.token_ns.back());
    report.output_per_user +=
        static_cast<double>(request.token_ns.size()) / values.latency.back() * 1e3;
  }
  const auto count = static_cast<double>(requests.size());
  report.output_per_user /= count;
  report.total_ms = ms_between(first_ns, end_ns);
  report.latency_ms = base::percentiles_of(std::move(values.latency));
  report.avg_concurrent_requests = report.latency_ms.mean * count / report.total_ms;
  if (const double issuing_ms = ms_between(first_ns, last_start_ns); issuing_ms > 0.0) {
    report.issue_rate_req_s = count / issuing_ms * 1e3;
  }
  report.ttft_ms = base::percentiles_of(std::move(values.ttft));
  report.tpot_ms = base::percentiles_of(std::move(values.tpot));
  report.itl_ms = base::percentiles_of(std::move(values.itl));
  report.user_speed = base::percentiles_of(std::move(values.user_speed));
  return report;
}

}  // namespace wideep::measure
