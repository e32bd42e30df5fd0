// SPDX-License-Identifier: Apache-2.0
//
// An undisturbed server says what each answer must be, byte for byte but for identities and times;
// under faults every reply is held against it. Only a request that may not have been read when the
// server was told to end may go without one. Events of different answers to one request may come in
// any order, and are sorted by answer. Times of arrival are kept, for the silence that a client
// sees around a fault.
#include "fault_load.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include "http/http_client_testing.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr size_t kMaxProblems = 3;
// Where all ranks are needed for each request, all requests begin again with every kill: while
// kills come fast, hardly any ends.
constexpr int kPatienceSeconds = 180;
constexpr int kLast = 1000;  // where events come that are of no answer
// Shorter ones between parts of a stream are of no interest.
constexpr auto kShortSilence = 20ms;

std::string without_identity(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  return value.is_object() ? lasting(value).dump() : text;
}

// A server that has ended meanwhile takes nothing: then there is no reply.
void send_plainly(const server::Socket& socket, const std::string& path, const json& body) {
  const std::string text = body.dump();
  const std::string message = fmt::format(
      "POST {} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", path,
      text.size(), text);
  ::send(socket.fd(), message.data(), message.size(), MSG_NOSIGNAL);
}

// The identity in a body or in an event, also of one that is about it.
std::string id_in(const std::string& text) {
  const json value = json::parse(text, nullptr, false);
  if (!value.is_object()) return "";
  const json& of = value.contains("response") ? value["response"] : value;
  return of.is_object() && of.contains("id") && of["id"].is_string() ? of["id"] : "";
}

std::string name_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/comm", process));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

std::vector<pid_t> processes_named(const Command& server, const std::string& beginning) {
  std::vector<pid_t> found;
  for (const pid_t process : server.ranks()) {
    if (name_of(process).starts_with(beginning)) found.push_back(process);
  }
  return found;
}

std::vector<std::string> own_deaths(const std::string& log) {
  std::vector<std::string> deaths;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const bool is_of_process =
        line.starts_with("rank ") || line.find("the serving process") != line.npos;
    const bool was_signal = line.find("was ended by signal ") != line.npos &&
                            line.find("was ended by signal 9 ") == line.npos;
    const bool is_own = was_signal || line.find(" ended with exit code ") != line.npos ||
                        line.find(") failed: ") != line.npos;
    if (is_of_process && is_own) deaths.push_back(line);
  }
  return deaths;
}

PlainReply ask_plainly(int port, const std::string& path, const json& body) {
  server::Socket socket(port);
  return ask_plainly(socket, path, body);
}

PlainReply ask_plainly(server::Socket& socket, const std::string& path, const json& body) {
  PlainReply reply;
  socket.set_patience(kPatienceSeconds);
  send_plainly(socket, path, body);
  std::string all;
  errno = 0;
  // Chunks of a stream are taken apart as they come, because their times count.
  for (std::string part = socket.receive(); !part.empty(); part = socket.receive()) {
    reply.arrivals.push_back(std::chrono::steady_clock::now());
    all += part;
  }
  const size_t end = all.find("\r\n\r\n");
  if (end == all.npos) {
    const bool waited = errno == EAGAIN || errno == EWOULDBLOCK;
    reply.error = !all.empty() ? "cut in its head"
                  : waited     ? fmt::format("no reply within {} s", kPatienceSeconds)
                               : "no reply";
    return reply;
  }
  reply.status = std::stoi(all.substr(9, 3));
  const bool is_stream = all.substr(0, end).find("chunked") != all.npos;
  if (!is_stream) {
    reply.text = without_identity(all.substr(end + 4));
    reply.id = id_in(all.substr(end + 4));
    reply.arrivals.clear();
    return reply;
  }
  if (!all.ends_with("0\r\n\r\n")) {
    reply.error = fmt::format("the stream was cut ({})", std::strerror(errno));
    return reply;
  }
  // The order of events of different answers depends on when their tokens came.
  std::map<int, std::string> of_answers;
  const std::string events = server::without_chunk_lengths(all.substr(end + 4));
  for (size_t at = 0; at < events.size();) {
    const size_t next = std::min(events.find("\n\n", at), events.size());
    const std::string event = events.substr(at, next - at);
    at = next + 2;
    if (event.starts_with(':')) continue;  // a comment, where nothing came for a while
    constexpr std::string_view kData = "data: ";
    const size_t data = event.starts_with(kData) ? 0 : event.find("\ndata: ") + 1;
    // None in what is left of an event where an error ends the stream.
    const std::string text = event.substr(std::min(data + kData.size(), event.size()));
    if (event.starts_with("event: ping")) continue;
    const json value = json::parse(text, nullptr, false);
    const bool is_part = value.is_object() && value.contains("choices");
    const bool has_answer = is_part && !value["choices"].empty();
    const int answer = has_answer ? value["choices"].at(0).value("index", 0) : kLast;
    of_answers[answer] += event.substr(0, data) + without_identity(text) + '\n';
    if (reply.id.empty()) reply.id = id_in(text);
  }
  for (const auto& [answer, part] : of_answers) reply.text += part;
  return reply;
}

MixedModel::MixedModel() {
  if (const char* value = std::getenv("WIDEEP_FAULT_MODEL"); value != nullptr) {
    for_figures_ = true;
    path_ = value;
    return;
  }
  path_ = directory_.path();
  write_random_model(path_, {.num_predicting = 2});
  std::ofstream(directory_.file("chat_template.jinja")) << kMixedTemplate;
}

FaultLoad::Options MixedModel::load(bool routed_experts) const {
  return {.num_requests = (for_figures_ ? 6 : 2) * kMixedKinds,
          .num_clients = for_figures_ ? 32 : 8,
          .max_tokens = for_figures_ ? 160 : 48,
          .mixed = true,
          .routed_experts = routed_experts};
}

FaultLoad::FaultLoad(const Options& options)
    : options_(options), expected_(static_cast<size_t>(options.num_requests)) {}

MixedRequest FaultLoad::request_of(int request) const {
  if (options_.mixed) {
    MixedRequest mixed = mixed_request(request, options_.max_tokens, options_.routed_experts);
    constexpr int kStep = 37;  // so that lengths go with no kind
    const int more = request * kStep % (options_.more_words + 1);
    return more == 0 ? mixed : with_words_before(std::move(mixed), request, more);
  }
  const size_t start = static_cast<size_t>(request) * 3 % options_.text.size();
  const std::string prompt = options_.text.substr(start) + std::to_string(request % 7);
  json body = {{"model", "m"},
               {"max_tokens", options_.max_tokens - request % 9},
               {"temperature", request % 2 == 0 ? 0.0 : 0.9},
               {"seed", 1000 + request},
               {"ignore_eos", true},
               {"stream", request % 4 != 3}};
  // What depends on the tokens before.
  if (request % 5 == 0) body["frequency_penalty"] = 0.5;
  if (request % 5 == 1) body["repetition_penalty"] = 1.2;
  body["prompt"] = prompt;
  if (request % 3 == 1) body["logprobs"] = 2;
  if (request % 6 == 2) body["n"] = 2;
  return {.kind = "completion", .path = "/v1/completions", .body = body};
}

void FaultLoad::complain(int request, const PlainReply& reply) {
  const std::lock_guard lock(mutex_);
  if (problems_.size() == kMaxProblems) return;
  const std::string& wanted = expected_[static_cast<size_t>(request)];
  if (const char* dump = std::getenv("WIDEEP_FAULT_DUMP"); dump != nullptr) {
    std::ofstream(fmt::format("{}/got", dump)) << reply.text;
    std::ofstream(fmt::format("{}/wanted", dump)) << wanted;
  }
  const auto [a, b] = std::ranges::mismatch(reply.text, wanted);
  const auto at = static_cast<size_t>(a - reply.text.begin());
  problems_.push_back(fmt::format(
      "request {} ({}): status {}, {}; differs at byte {} of {} ({} wanted): '{}' instead of '{}'",
      request, request_of(request).kind, reply.status,
      reply.error.empty() ? "no error" : reply.error, at, reply.text.size(), wanted.size(),
      reply.text.substr(at, 120), wanted.substr(std::min(at, wanted.size()), 120)));
}

void FaultLoad::learn(int port) {
  for (int request = 0; request < options_.num_requests; ++request) {
    const MixedRequest asked = request_of(request);
    const PlainReply reply = ask_plainly(port, asked.path, asked.body);
    expected_[static_cast<size_t>(request)] = reply.text;
    if (reply.status != 200 || !reply.error.empty()) complain(request, reply);
  }
}

void FaultLoad::start(int port) {
  port_ = port;
  stops_ = false;
  for (int client = 0; client < options_.num_clients; ++client) {
    clients_.emplace_back([this, client] { run(client); });
  }
}

void FaultLoad::stop() {
  stops_ = true;
  for (std::thread& client : clients_) client.join();
  clients_.clear();
}

void FaultLoad::run(int client) {
  std::mt19937 random(static_cast<uint32_t>(client));
  while (!stops_) {
    const int request = std::uniform_int_distribution(0, options_.num_requests - 1)(random);
    const MixedRequest asked = request_of(request);
    if (options_.leaves_one_in > 0 &&
        random() % static_cast<unsigned>(options_.leaves_one_in) == 0) {
      constexpr unsigned kLongest = 400;  // ms
      ask_and_leave(asked, std::chrono::milliseconds(random() % kLongest));
      continue;
    }
    std::optional<server::Socket> socket;
    if (!connect(&socket)) return;
    const auto asked_at = Clock::now();
    const PlainReply reply = ask_plainly(*socket, asked.path, asked.body);
    const bool is_refused = reply.status == 503 || reply.error == "no reply";
    if (is_refused && may_be_unseen(asked_at)) return;
    const bool is_right = reply.status == 200 && reply.error.empty() &&
                          reply.text == expected_[static_cast<size_t>(request)];
    if (!is_right) complain(request, reply);
    ++replies_;
    if (is_right && asked.is_stored) get_stored(request, reply);
    const std::lock_guard lock(mutex_);
    for (size_t i = 1; i < reply.arrivals.size(); ++i) {
      if (reply.arrivals[i] - reply.arrivals[i - 1] < kShortSilence) continue;
      silences_.push_back({reply.arrivals[i - 1], reply.arrivals[i]});
    }
  }
}

void FaultLoad::ask_and_leave(const MixedRequest& asked, std::chrono::milliseconds after) {
  std::optional<server::Socket> socket;
  if (!connect(&socket)) return;
  send_plainly(*socket, asked.path, asked.body);
  std::this_thread::sleep_for(after);
}

// It is what was answered, or gone with the serving process that had it.
void FaultLoad::get_stored(int request, const PlainReply& reply) {
  std::optional<server::Socket> socket;
  if (!connect(&socket)) return;
  const auto asked_at = Clock::now();
  const server::Reply got = server::ask(*socket, "GET", "/v1/responses/" + reply.id);
  if (got.status == 404 || (got.status != 200 && may_be_unseen(asked_at))) return;
  const json stored = json::parse(got.body, nullptr, false);
  const bool is_right = got.status == 200 && stored.is_object() &&
                        stored.value("id", "") == reply.id &&
                        reply.text.find(lasting(stored["output"]).dump()) != reply.text.npos;
  if (is_right) return;
  const std::lock_guard lock(mutex_);
  if (problems_.size() < kMaxProblems) {
    problems_.push_back(fmt::format("request {}, stored: status {}, {}; answered: {}", request,
                                    got.status, got.body, reply.text));
  }
}

// False: the end is near.
bool FaultLoad::connect(std::optional<server::Socket>* socket) {
  const std::shared_lock lock(connecting_);
  if (!end_is_near_) socket->emplace(port_);
  return socket->has_value();
}

void FaultLoad::end_is_near() {
  const std::unique_lock lock(connecting_);
  end_is_near_ = Clock::now();
}

bool FaultLoad::may_be_unseen(Clock::time_point asked) {
  constexpr auto kSoon = 2s;
  const std::shared_lock lock(connecting_);
  return end_is_near_ && *end_is_near_ - asked < kSoon;
}

void FaultLoad::note_fault() {
  const std::lock_guard lock(mutex_);
  faults_.push_back(Clock::now());
}

std::vector<std::string> FaultLoad::problems() const {
  const std::lock_guard lock(mutex_);
  return problems_;
}

// A fault shows in the silence in which it happens, or in one that begins right after it, when what
// was under way has arrived.
std::vector<double> FaultLoad::gaps() const {
  constexpr auto kSoon = 30ms;
  const std::lock_guard lock(mutex_);
  std::vector<double> gaps;
  for (const Clock::time_point fault : faults_) {
    double longest = 0.0;
    for (const Silence& each : silences_) {
      if (each.from > fault + kSoon || each.to < fault) continue;
      longest = std::max(longest, std::chrono::duration<double>(each.to - each.from).count());
    }
    if (longest > 0.0) gaps.push_back(longest);
  }
  std::ranges::sort(gaps);
  return gaps;
}

std::string gaps_text(const std::vector<double>& gaps) {
  const auto at = [&](double part) {
    return gaps[static_cast<size_t>(part * static_cast<double>(gaps.size() - 1))];
  };
  return fmt::format("median {:.3f} s, p99 {:.3f} s, most {:.3f} s", at(0.5), at(0.99),
                     gaps.back());
}

}  // namespace wideep::tests
