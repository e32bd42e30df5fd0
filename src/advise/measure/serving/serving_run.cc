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

// One request under way.
struct Seen {
  int64_t start_ns = 0;
  int64_t last_ns = 0;  // of the last chunk with choices; 0: there was none
  int64_t num_texts = 0;
  ServedRequest served;
};

std::string body_of(const ServingOptions& options, const DatasetRequest& request) {
  json body = {{"model", options.model},
               {"max_tokens", request.output_tokens},
               {"temperature", options.temperature},
               {"stream", options.streams}};
  if (options.streams) body["stream_options"] = {{"include_usage", true}};
  if (options.api == ServingApi::kChat) {
    body["messages"] = {{{"role", "user"}, {"content", std::get<std::string>(request.prompt)}}};
  } else {
    std::visit([&](const auto& prompt) { body["prompt"] = prompt; }, request.prompt);
  }
  if (options.ignore_eos) body["ignore_eos"] = true;
  if (options.top_p) body["top_p"] = *options.top_p;
  if (options.min_p) body["min_p"] = *options.min_p;
  if (options.top_k) body["top_k"] = *options.top_k;
  if (options.logprobs && options.api == ServingApi::kChat) {
    body["logprobs"] = true;
    body["top_logprobs"] = *options.logprobs;
  } else if (options.logprobs) {
    body["logprobs"] = *options.logprobs;
  }
  return formats::json_text(body);
}

// Finds in an event the few values that matter, while parsing it. Building a JSON tree would cost
// more than all else that the client does for a token, and the client may share its processors with
// the server.
class EventReader : public nlohmann::json_sax<json> {
 public:
  explicit EventReader(bool keeps_text) : keeps_text_(keeps_text) {}

  bool has_choices() const { return has_choices_; }
  bool has_text() const { return has_text_; }
  const std::string& text() const { return text_; }
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
    // choices[].text, or of chats choices[].delta.content and choices[].message.content
    if (part_ != Part::kChoices || value.empty()) return true;
    const bool is_text =
        (depth_ == 3 && key_ == "text") ||
        (depth_ == 4 && key_ == "content" && (object_ == "delta" || object_ == "message"));
    if (!is_text) return true;
    has_text_ = true;
    if (keeps_text_) text_ += value;
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    ++depth_;
    if (depth_ == 2 && part_ == Part::kUsage) has_usage_ = true;
    if (depth_ == 3 && part_ == Part::kChoices) has_choices_ = true;
    if (depth_ == 4) object_ = key_;
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
  bool keeps_text_;
  std::string key_, object_;  // the last key; that of the object within a choice
  std::string text_;
  bool has_choices_ = false, has_text_ = false, has_usage_ = false;
  int64_t prompt_tokens_ = 0, completion_tokens_ = 0;
};

// data: an event's, or a whole reply.
void take_event(const ServingOptions& options, std::string_view data, Seen& seen) {
  const int64_t now = base::wall_ns();
  if (data.find('{') == data.npos) return;  // [DONE]
  EventReader event(options.keeps_texts);
  if (!json::sax_parse(data, &event)) return;
  ServedRequest& served = seen.served;
  if (event.has_choices()) {
    if (seen.last_ns == 0) {
      served.ttft = seconds_between(seen.start_ns, now);
    } else {
      served.itl.push_back(seconds_between(seen.last_ns, now));
    }
    seen.last_ns = now;
  }
  if (event.has_text()) ++seen.num_texts;
  served.text += event.text();
  if (!event.has_usage()) return;
  served.input_tokens = event.prompt_tokens();
  served.output_tokens = event.completion_tokens();
}

// Completes the figures of a request at its end.
void take_end(const ServingOptions& options, const Status& status, Seen& seen) {
  ServedRequest& served = seen.served;
  served.status = status;
  if (status.ok() && seen.last_ns == 0) served.status = failed("the reply has no text");
  if (seen.last_ns > 0) served.e2el = seconds_between(seen.start_ns, seen.last_ns);
  if (!options.streams) served.ttft = 0.0;
  // Without counts of usage from the server, every event with text is taken to be one token.
  if (served.output_tokens == 0) served.output_tokens = seen.num_texts;
}

ServingReport report_of(std::vector<Seen> all, bool streams, double seconds) {
  ServingReport report{.seconds = seconds};
  std::vector<double> ttft, tpot, itl, e2el;
  for (Seen& seen : all) {
    const ServedRequest& served = report.requests.emplace_back(std::move(seen.served));
    if (!served.status.ok()) {
      report.failures.push_back(served.status.message());
      continue;
    }
    ++report.completed;
    report.input_tokens += served.input_tokens;
    report.output_tokens += served.output_tokens;
    e2el.push_back(served.e2el);
    if (!streams) continue;
    ttft.push_back(served.ttft);
    if (served.output_tokens > 1) tpot.push_back(served.tpot());
    itl.insert(itl.end(), served.itl.begin(), served.itl.end());
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
  WIDEEP_TRY_ASSIGN(const auto streams,
                    client::EventStreams::open(options.address, options.patience));
  const std::vector<double> times =
      advise::arrival_times(options.arrivals, static_cast<int>(options.requests.size()));
  std::vector<Seen> seen(options.requests.size());
  const int64_t start_ns = base::wall_ns();
  const auto send = [&](size_t i) {
    std::string body = body_of(options, options.requests[i]);
    seen[i].start_ns = base::wall_ns();
    streams->post(
        options.endpoint, std::move(body),
        [&, i](std::string_view data) { take_event(options, data, seen[i]); },
        [&, i](const Status& status) {
          take_end(options, status, seen[i]);
          if (on_done) on_done();
        },
        /*whole=*/!options.streams);
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
  const double seconds = seconds_between(start_ns, base::wall_ns());
  return report_of(std::move(seen), options.streams, seconds);
}

}  // namespace wideep::measure
