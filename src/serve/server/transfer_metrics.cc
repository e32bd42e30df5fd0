// SPDX-License-Identifier: Apache-2.0
//
// vLLM's histograms have its buckets (vllm_metrics.cc). There a transfer that fails is recomputed or
// fails its request; here one of which nothing came is computed.
#include "server/transfer_metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

// Of the sums of late transfers, with each one more.
constexpr double kKept = 0.9;
constexpr double kMaxAge = 60.0;

// 2 KiB to 8 GiB.
std::vector<double> of_transferred_bytes() {
  std::vector<double> bounds;
  for (int power = 11; power < 35; power += 2) bounds.push_back(std::exp2(power));
  return bounds;
}

}  // namespace

TransferMetrics::TransferMetrics(Clock now)
    : now_(std::move(now)),
      seconds_({0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30}),
      vllm_seconds_({0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}),
      vllm_bytes_(of_transferred_bytes()) {}

void TransferMetrics::add(const run::PromptTransfer& transfer) {
  const run::PeerPages& from = transfer.from_peer;
  const bool has_any = from.pages > 0;
  if (!has_any && from.trouble.empty()) return;  // nothing was wanted
  ++(from.trouble.empty() ? whole_ : has_any ? part_ : none_);
  if (!has_any) return;
  pages_ += static_cast<uint64_t>(from.pages);
  bytes_ += from.bytes;
  hidden_seconds_ += from.hidden_seconds();
  exposed_seconds_ += from.exposed_seconds;
  const double now = now_();
  if (now - measured_at_ > kMaxAge) late_pages_ = late_seconds_ = 0.0;
  late_pages_ = kKept * late_pages_ + from.pages;
  late_seconds_ = kKept * late_seconds_ + from.transfer_seconds;
  measured_at_ = now;
  seconds_.add(from.seconds);
  vllm_seconds_.add(from.transfer_seconds);
  vllm_bytes_.add(static_cast<double>(from.bytes));
}

std::string TransferMetrics::text(const store::PageServerCounts& given) const {
  constexpr const char* kTransfers = "wideep_prompt_transfers_total";
  std::string text = metric_head(kTransfers, "counter",
                                 "Requests whose prompts another server computes, or has a part "
                                 "of, by how much of what was wanted has come from there.");
  const std::pair<const char*, uint64_t> outcomes[] = {
      {"whole", whole_}, {"part", part_}, {"none", none_}};
  for (const auto& [outcome, count] : outcomes) {
    text += fmt::format("{}{{outcome=\"{}\"}} {}\n", kTransfers, outcome, count);
  }
  text += metric("wideep_prompt_transfer_pages_total", "counter", "Pages that came.", pages_) +
          metric("wideep_prompt_transfer_bytes_total", "counter", "Their bytes.", bytes_);
  constexpr const char* kSeconds = "wideep_prompt_transfer_seconds";
  text += metric_head(kSeconds, "histogram",
                      "From the first question for a prompt's pages to the last that came.") +
          seconds_.text(kSeconds);
  text +=
      metric("wideep_prompt_transfer_hidden_seconds_total", "counter",
             "Seconds in which pages came while the prompt was still computed.", hidden_seconds_) +
      metric("wideep_prompt_transfer_not_hidden_seconds_total", "counter",
             "Seconds from the end of computing a prompt to the last page that came.",
             exposed_seconds_);
  return text +
         metric("wideep_pages_given_looks_total", "counter",
                "Questions of other servers for pages.", given.looks.load()) +
         metric("wideep_pages_given_total", "counter",
                "Pages, or states, that other servers have taken, each rank its part.",
                given.records.load()) +
         metric("wideep_pages_given_bytes_total", "counter", "Their bytes.", given.bytes.load());
}

std::optional<double> TransferMetrics::pages_per_second() const {
  if (late_seconds_ <= 0.0 || now_() - measured_at_ > kMaxAge) return std::nullopt;
  return late_pages_ / late_seconds_;
}

nlohmann::ordered_json TransferMetrics::json() const {
  return {{"whole", whole_},
          {"part", part_},
          {"none", none_},
          {"pages", pages_},
          {"bytes", bytes_},
          {"seconds_hidden", hidden_seconds_},
          {"seconds_not_hidden", exposed_seconds_}};
}

std::string TransferMetrics::vllm_text(std::string_view labels) const {
  const auto histogram = [&](std::string_view name, const Histogram& values,
                             std::string_view help) {
    return metric_head(name, "histogram", help) + values.text(name, labels);
  };
  constexpr const char* kFailed = "vllm:nixl_num_failed_transfers_total";
  return histogram("vllm:nixl_xfer_time_seconds", vllm_seconds_,
                   "Time in which pages of a prompt came from another server.") +
         histogram("vllm:nixl_bytes_transferred", vllm_bytes_, "Their bytes.") +
         metric_head(kFailed, "counter", "Prompts of which no page came.") +
         fmt::format("{}{{{}}} {}\n", kFailed, labels, none_);
}

}  // namespace wideep::server
