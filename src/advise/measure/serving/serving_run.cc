// SPDX-License-Identifier: Apache-2.0
//
// The client may share its cores with the server, so a token must cost it little: an event is
// parsed by callbacks that keep the few values that matter, without a tree of JSON, and one thread
// waits for all streams. An event's time is taken before it is parsed. Tokens are those of the
// server's usage; where it sends none, each event with text is one.
#include "measure/serving/serving_run.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/cpu_time.h"
#include "base/try.h"
#include "formats/json_text.h"

namespace wideep::measure {
namespace {

using nlohmann::json;

double seconds_between(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

// One request as its client sees it.
struct Seen {
  int64_t start_ns = 0;
  std::vector<int64_t> text_ns;  // of events with text
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  Status status;
};

std::string body_of(const ServingOptions& options, const DatasetRequest& request) {
  json body = {{"model", options.model},
               {"max_tokens", request.output_tokens},
               {"temperature", 0},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  std::visit([&](const auto& prompt) { body["prompt"] = prompt; }, request.prompt);
  if (options.ignore_eos) body["ignore_eos"] = true;
  return formats::json_text(body);
}

// Finds in an event the few values that matter, while parsing it. Building a JSON tree would cost
// more than all else that the client does for a token, and the client may share its processors with
// the server.
class EventReader : public nlohmann::json_sax<json> {
 public:
  bool has_text() const { return has_text_; }
  bool has_usage() const { return has_usage_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t completion_tokens() const { return completion_tokens_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t& value) override {
    // choices[0].text
    if (depth_ == 3 && part_ == Part::kChoices && key_ == "text" && !value.empty())
      has_text_ = true;
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    if (++depth_ == 2 && part_ == Part::kUsage) has_usage_ = true;
    return true;
  }
  bool key(string_t& value) override {
    key_.swap(value);
    if (depth_ == 1) {
      part_ = key_ == "choices" ? Part::kChoices : key_ == "usage" ? Part::kUsage : Part::kOther;
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  enum class Part { kOther, kChoices, kUsage };

  bool number(int64_t value) {
    if (depth_ != 2 || part_ != Part::kUsage) return true;
    if (key_ == "prompt_tokens") prompt_tokens_ = value;
    if (key_ == "completion_tokens") completion_tokens_ = value;
    return true;
  }

  Part part_ = Part::kOther;  // the top-level key of the event that is being parsed
  int depth_ = 0;
  std::string key_;
  bool has_text_ = false, has_usage_ = false;
  int64_t prompt_tokens_ = 0, completion_tokens_ = 0;
};

void take_event(std::string_view data, Seen& seen) {
  const int64_t now = base::wall_ns();
  if (!data.starts_with('{')) return;  // [DONE]
  EventReader event;
  if (!json::sax_parse(data, &event)) return;
  if (event.has_text()) seen.text_ns.push_back(now);
  if (!event.has_usage()) return;
  seen.input_tokens = event.prompt_tokens();
  seen.output_tokens = event.completion_tokens();
}

// Completes the figures of a request at its end.
void take_end(const Status& status, Seen& seen) {
  seen.status = status;
  if (status.ok() && seen.text_ns.empty()) seen.status = failed("the reply has no text");
  // Without counts of usage from the server, every event is taken to be one token.
  if (seen.output_tokens == 0) seen.output_tokens = static_cast<int64_t>(seen.text_ns.size());
}

ServingReport report_of(const std::vector<Seen>& all, int64_t start_ns, int64_t end_ns) {
  ServingReport report{.seconds = seconds_between(start_ns, end_ns)};
  std::vector<double> ttft, tpot, itl, e2el;
  for (const Seen& seen : all) {
    if (!seen.status.ok()) {
      report.failures.push_back(seen.status.message());
      continue;
    }
    ++report.completed;
    report.input_tokens += seen.input_tokens;
    report.output_tokens += seen.output_tokens;
    ttft.push_back(seconds_between(seen.start_ns, seen.text_ns.front()));
    e2el.push_back(seconds_between(seen.start_ns, seen.text_ns.back()));
    if (seen.output_tokens > 1) {
      tpot.push_back((e2el.back() - ttft.back()) / static_cast<double>(seen.output_tokens - 1));
    }
    for (size_t i = 1; i < seen.text_ns.size(); ++i) {
      itl.push_back(seconds_between(seen.text_ns[i - 1], seen.text_ns[i]));
    }
  }
  report.ttft = base::percentiles_of(std::move(ttft));
  report.tpot = base::percentiles_of(std::move(tpot));
  report.itl = base::percentiles_of(std::move(itl));
  report.e2el = base::percentiles_of(std::move(e2el));
  return report;
}

}  // namespace

Result<ServingReport> run_serving_bench(const ServingOptions& options,
                                        const std::function<void()>& on_done) {
  WIDEEP_TRY_ASSIGN(const auto streams, EventStreams::open(options.address, options.patience));
  const std::vector<double> times =
      advise::arrival_times(options.arrivals, static_cast<int>(options.requests.size()));
  std::vector<Seen> seen(options.requests.size());
  const int64_t start_ns = base::wall_ns();
  const auto send = [&](size_t i) {
    std::string body = body_of(options, options.requests[i]);
    seen[i].start_ns = base::wall_ns();
    streams->post(
        "/v1/completions", std::move(body),
        [&seen, i](std::string_view data) { take_event(data, seen[i]); },
        [&seen, &on_done, i](const Status& status) {
          take_end(status, seen[i]);
          if (on_done) on_done();
        });
  };
  const auto max = static_cast<size_t>(options.max_concurrency);
  for (size_t next = 0; next < seen.size() || streams->under_way() > 0;) {
    // Waits for events, but not longer than until the next request is due.
    std::chrono::milliseconds patience = std::chrono::seconds(1);
    if (next < seen.size() && streams->under_way() < max) {
      const double early = times[next] - seconds_between(start_ns, base::wall_ns());
      if (early <= 0) {
        send(next++);
        continue;
      }
      patience = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(early));
    }
    streams->wait(patience);
  }
  return report_of(seen, start_ns, base::wall_ns());
}

}  // namespace wideep::measure
