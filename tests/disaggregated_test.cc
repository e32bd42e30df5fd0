// SPDX-License-Identifier: Apache-2.0
//
// Who computes a prompt changes no answer: one group of ranks computes prompts, and serves its
// pages; another one, in another layout, takes them while they come, and generates. Both run at
// once. The logits of every generated step have the same bits as in a run that shares nothing, and
// all pages that can come have come. Where the first group is killed in the middle, the other one
// computes the rest, and the bits are the same, too.
//
// Every layout is on each side of every family; with WIDEEP_TEST_ALL every pair of layouts.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "base/try.h"
#include "family_layouts.h"
#include "model/config/config.h"
#include "model/model_division.h"
#include "random_model.h"
#include "run/rank_group.h"
#include "store/page_peer.h"
#include "store/page_server.h"

namespace wideep::tests {
namespace {

using Drafts = parallel::SpeculativeConfig::Type;

constexpr const char* kPredicts = "deepseek_v3";  // has a prediction layer
constexpr const char* kToken = "of-a-test";
constexpr int kMaxTokens = 6;
constexpr int kPageTokens = 64;
constexpr std::array<int, 6> kLengths = {65, 127, 128, 129, 191, 390};  // of prompts, in tokens

bool tests_all() {
  const char* value = std::getenv("WIDEEP_TEST_ALL");
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

// Of a group of ranks, and what drafts.
struct Setting {
  Layout layout;
  std::optional<Drafts> drafts = {};

  bool predicts() const { return drafts == Drafts::kMtp; }
};

std::vector<Setting> settings() {
  return {
      {{"one rank", sizes_of(1, 1, 1)}},
      {{"chunks of 50", sizes_of(1, 1, 1), false, false, 50}},
      {{"ep 2", sizes_of(2, 1, 1), true}},
      {{"ep 2, chunks of 33", sizes_of(2, 1, 1), true, false, 33}},
      {{"ep 4, chunks of 70", sizes_of(4, 1, 1), true, false, 70}},
      {{"etp 2", sizes_of(2, 1, 1, 2), true}},
      {{"tp 2", sizes_of(2, 1, 1)}},
      {{"tp 2, etp 2", sizes_of(2, 1, 1, 2)}},
      {{"pp 2", sizes_of(1, 2, 1)}},
      {{"pp 2, chunks of 90", sizes_of(1, 2, 1), false, false, 90}},
      {{"pp 2, ep 2, chunks of 70", sizes_of(2, 2, 1), true, false, 70}},
      {{"cp 2", sizes_of(1, 1, 2)}},
      {{"cp 2, ep 2", sizes_of(2, 1, 2), true}},
      {{"NGram", sizes_of(1, 1, 1)}, Drafts::kNgram},
      {{"pp 2, NGram", sizes_of(1, 2, 1)}, Drafts::kNgram},
      {{"tp 2, NGram", sizes_of(2, 1, 1)}, Drafts::kNgram},
      {{"ep 2, NGram, chunks of 70", sizes_of(2, 1, 1), true, false, 70}, Drafts::kNgram},
      {{"MTP", sizes_of(1, 1, 1)}, Drafts::kMtp},
      {{"ep 2, MTP", sizes_of(2, 1, 1), true}, Drafts::kMtp},
      {{"pp 2, MTP, chunks of 50", sizes_of(1, 2, 1), false, false, 50}, Drafts::kMtp},
  };
}

// ---- processes ----

// A process with a pipe to it and one from it, for lines. Its own children end with it.
class Child {
 public:
  // body: what it does, with the ends of its pipes.
  template <typename Body>
  explicit Child(Body body) {
    int to[2], from[2];
    EXPECT_EQ(::pipe2(to, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(from, O_CLOEXEC), 0);
    std::fflush(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::setpgid(0, 0);
      ::close(to[1]);
      ::close(from[0]);
      const Status status = body(to[0], from[1]);
      if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
      std::fflush(nullptr);
      ::_exit(status.ok() ? 0 : 1);
    }
    ::setpgid(process_, process_);
    ::close(to[0]);
    ::close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~Child() {
    if (process_ > 0) kill();
    close_input();
    ::close(from_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // nullopt: it has ended, or says nothing for too long.
  std::optional<std::string> line() {
    for (;;) {
      if (const size_t end = said_.find('\n'); end != said_.npos) {
        std::string line = said_.substr(0, end);
        said_.erase(0, end + 1);
        return line;
      }
      pollfd ready{from_, POLLIN, 0};
      constexpr int kPatience = 120'000;
      if (::poll(&ready, 1, kPatience) <= 0) return std::nullopt;
      char some[4096];
      const ssize_t count = ::read(from_, some, sizeof(some));
      if (count <= 0) return std::nullopt;
      said_.append(some, static_cast<size_t>(count));
    }
  }
  void close_input() {
    if (to_ >= 0) ::close(std::exchange(to_, -1));
  }
  void kill() {
    ::kill(-process_, SIGKILL);
    ::waitpid(std::exchange(process_, -1), nullptr, 0);
  }
  // Whether it has ended well.
  bool wait() {
    int status = 0;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t process_ = -1;
  int to_ = -1, from_ = -1;
  std::string said_;
};

void say(int out, const std::string& line) {
  const std::string bytes = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(out, bytes.data(), bytes.size());
}

// ---- what they do ----

std::string name_of(int index) { return fmt::format("prompt:{}", index); }

// Which of the prompts have been computed: what the page server says of them.
struct Ended {
  std::array<std::atomic<bool>, kLengths.size()> of_prompt = {};

  store::RequestState state_of(std::string_view name) const {
    for (size_t i = 0; i < of_prompt.size(); ++i) {
      if (name != name_of(static_cast<int>(i))) continue;
      return of_prompt[i] ? store::RequestState::kEnded : store::RequestState::kComputes;
    }
    return store::RequestState::kUnknown;
  }
};

// Computes the prompts, and serves their pages until its input ends. Says where, then each prompt
// that is computed.
Status compute_prompts(const run::RunOptions& options, std::vector<engine::Request> requests,
                       int in, int out) {
  WIDEEP_TRY_ASSIGN(const auto run, run::Run::prepare(options));
  WIDEEP_TRY(run->load([](uint64_t) {}));
  WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run));
  Ended ended;
  store::PageServerOptions server{
      .address = transport::resolve("127.0.0.1", 0).value(),
      .token = kToken,
      .record_class = run->record_class(),
      .state_of = [&](auto name) { return store::RequestStatus{.state = ended.state_of(name)}; }};
  WIDEEP_TRY_ASSIGN(const auto pages,
                    store::PageServer::start(std::move(server), *run->host_tier_memory()));
  say(out, store::text_of({.host = {"127.0.0.1", pages->address().port},
                           .token = kToken,
                           .record_class = run->record_class()}));
  for (engine::Request& each : requests) {
    each.max_tokens = 1;
    group->requests().submit(std::move(each));
  }
  std::thread waits([&] {
    char byte = 0;
    while (::read(in, &byte, 1) > 0) {
    }
    group->requests().finish();
  });
  while (const auto event = group->next()) {
    const auto* token = std::get_if<run::Token>(&*event);
    if (token == nullptr) continue;
    ended.of_prompt[static_cast<size_t>(token->request_index)] = true;
    say(out, "computed");
  }
  waits.join();
  return group->result();
}

// Says "digest <prompt> <digest>", and "transfer <prompt> <pages> <of them from the peer>".
Status generate(const run::RunOptions& options, std::vector<engine::Request> requests, int out) {
  WIDEEP_TRY_ASSIGN(const auto run, run::Run::prepare(options));
  WIDEEP_TRY(run->load([](uint64_t) {}));
  WIDEEP_TRY_ASSIGN(const auto group, run::RankGroup::start(*run));
  for (engine::Request& each : requests) group->requests().submit(std::move(each));
  group->requests().finish();
  while (const auto event = group->next()) {
    if (const auto* token = std::get_if<run::Token>(&*event)) {
      if (token->digest.empty()) continue;
      say(out, fmt::format("digest {} {}", token->request_index, token->digest));
    } else if (const auto* from = std::get_if<run::PromptTransfer>(&*event)) {
      say(out, fmt::format("transfer {} {} {}", from->request_index, from->fetched_pages,
                           from->from_peer.pages));
    }
  }
  return group->result();
}

// ---- the tests ----

struct Answers {
  std::map<int, std::string> digests;
  std::map<int, int> fetched, from_peer;  // pages
};

Answers answers_of(Child& child) {
  Answers answers;
  while (const auto line = child.line()) {
    std::istringstream words(*line);
    std::string what;
    int prompt = -1;
    words >> what >> prompt;
    if (what == "digest") words >> answers.digests[prompt];
    if (what == "transfer") words >> answers.fetched[prompt] >> answers.from_peer[prompt];
  }
  return answers;
}

class Disaggregated : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (base::kSanitized) GTEST_SKIP() << "forks";
    if (GetParam() == kPredicts) {
      write_random_model(directory_.path(), {.family = kPredicts, .num_predicting = 1});
    } else {
      write_random_model_like(directory_.path(), GetParam());
    }
    auto config = model::read_model_config(directory_.path());
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = std::move(*config);
    for (const Setting& each : settings()) {
      if (is_possible(each)) possible_.push_back(each);
    }
    expected_ = alone().digests;
    ASSERT_EQ(expected_.size(), kLengths.size());
  }

  // Greedy and sampled, each other than all before.
  static std::vector<engine::Request> requests() {
    std::mt19937 random(41);
    std::vector<engine::Request> all;
    for (const int length : kLengths) {
      const int index = static_cast<int>(all.size());
      std::vector<int32_t> tokens(static_cast<size_t>(length));
      for (int32_t& each : tokens) each = static_cast<int32_t>('a' + random() % 26);
      all.push_back({.index = index,
                     .prompt = std::move(tokens),
                     .max_tokens = kMaxTokens,
                     .sampling = {.temperature = index % 2 == 0 ? 0.0f : 0.8f, .seed = 9},
                     .draw = index,
                     .ignore_eos = true});
    }
    return all;
  }

  run::GenerateOptions options(const Setting& setting) const {
    run::GenerateOptions options;
    options.model_dir = directory_.path();
    options.needs_tokenizer = false;
    options.logits_digest = true;
    options.threads_per_rank = 1;
    options.cache_pages = 48;
    options.parallel = parallel::parallel_config_for_ranks(1).value();
    options.timeout = std::chrono::milliseconds(60'000);
    set_layout(setting.layout, &options);
    const int experts = config_.routing.num_experts, ep = options.parallel.sizes.moe_ep;
    if (config_.num_moe_layers() > 0 && experts % ep != 0) {
      options.parallel.moe_config.load_balancer = {.num_slots = (experts / ep + 1) * ep,
                                                   .layer_updates_per_iter = 0};
    }
    if (setting.drafts) {
      options.parallel.speculative_config = {.type = *setting.drafts,
                                             .max_draft_len = setting.predicts() ? 1 : 3};
    }
    return options;
  }
  bool is_possible(const Setting& setting) const {
    if (setting.predicts() && (GetParam() != kPredicts || setting.layout.sizes.cp > 1)) {
      return false;
    }
    const run::GenerateOptions spread = options(setting);
    const bool divides_heads = spread.parallel.shares_batches();
    if (divides_heads && config_.indexer.num_heads > 0) return false;  // run/page_geometry.cc
    return model::check_parts(spread.parallel, config_).ok();
  }

  Answers alone() const {
    Child child([&](int, int out) {
      run::GenerateOptions plain = options(settings().front());
      plain.parallel.kv_cache_config.enable_block_reuse = false;
      return generate(plain, requests(), out);
    });
    Answers answers = answers_of(child);
    EXPECT_TRUE(child.wait());
    return answers;
  }

  std::unique_ptr<Child> start_computing(const Setting& setting) const {
    return std::make_unique<Child>([&](int in, int out) {
      run::GenerateOptions computes = options(setting);
      computes.host_cache_bytes = uint64_t{64} << 20;
      return compute_prompts(computes, requests(), in, out);
    });
  }
  std::unique_ptr<Child> start_generating(const Setting& setting, const std::string& peer) const {
    return std::make_unique<Child>([&](int, int out) {
      run::GenerateOptions generates = options(setting);
      generates.takes_from_peers = true;
      std::vector<engine::Request> all = requests();
      store::PagePeer computes = store::parse_page_peer(peer).value();
      for (engine::Request& each : all) {
        computes.request = name_of(each.index);
        each.peer = store::text_of(computes);
      }
      return generate(generates, std::move(all), out);
    });
  }

  // The pages of a prompt that its generation does not compute; with states those at whose end the
  // peer has kept one.
  static void expect_all_pages(const Answers& answers, const Setting& generates) {
    for (size_t i = 0; i < kLengths.size(); ++i) {
      const int prompt = static_cast<int>(i), pages = (kLengths[i] - 1) / kPageTokens;
      ASSERT_TRUE(answers.fetched.contains(prompt)) << "prompt " << i << " was not looked for";
      EXPECT_EQ(answers.fetched.at(prompt), pages) << "prompt " << i;
      // Of the rank that got most of them.
      EXPECT_GE(answers.from_peer.at(prompt) * generates.layout.sizes.cp, pages) << "prompt " << i;
    }
  }

  const base::ScratchDirectory directory_;
  model::ModelConfig config_;
  std::vector<Setting> possible_;
  std::map<int, std::string> expected_;
};

TEST_P(Disaggregated, GivesTheSameBits) {
  ASSERT_GE(possible_.size(), 12u);
  const size_t count = possible_.size();
  // Each shift pairs every setting with another one: one of them, another one for each family.
  const size_t shift = 1 + GetParam().size() % (count - 1);
  int pairs = 0;
  for (size_t by = 0; by < count; ++by) {
    if (!tests_all() && by != shift) continue;
    for (size_t i = 0; i < count; ++i) {
      const Setting &computes = possible_[i], &generates = possible_[(i + by) % count];
      SCOPED_TRACE(fmt::format("{} → {}", computes.layout.name, generates.layout.name));
      const auto computing = start_computing(computes);
      const auto peer = computing->line();
      ASSERT_TRUE(peer);
      const auto generating = start_generating(generates, *peer);
      const Answers answers = answers_of(*generating);
      ASSERT_TRUE(generating->wait());
      computing->close_input();
      ASSERT_TRUE(computing->wait());
      ASSERT_EQ(answers.digests, expected_);
      // Pages with what predicts, and without it, are not the same.
      if (computes.predicts() == generates.predicts()) expect_all_pages(answers, generates);
      ++pairs;
    }
  }
  fmt::print("  {}: {} settings, {} pairs, 0 bits differ\n", GetParam(), count, pairs);
}

// The group that computes is killed, with all its processes, after some of its prompts.
TEST_P(Disaggregated, SurvivesThePeersDeath) {
  std::mt19937 random(7);
  const int times = tests_all() ? 40 : 3;
  for (int i = 0; i < times; ++i) {
    const Setting& computes = possible_[random() % possible_.size()];
    const Setting& generates = possible_[random() % possible_.size()];
    SCOPED_TRACE(fmt::format("{} → {}", computes.layout.name, generates.layout.name));
    const auto computing = start_computing(computes);
    const auto peer = computing->line();
    ASSERT_TRUE(peer);
    const auto generating = start_generating(generates, *peer);
    for (size_t computed = random() % kLengths.size(); computed > 0; --computed) {
      ASSERT_TRUE(computing->line());
    }
    computing->kill();
    const Answers answers = answers_of(*generating);
    ASSERT_TRUE(generating->wait());
    ASSERT_EQ(answers.digests, expected_);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Disaggregated,
                         testing::Values(kPredicts, "qwen3_plain", "deepseek_v32_plain",
                                         "deepseek_v4_plain", "kimi_linear_plain",
                                         "nemotron_h_latent", "lfm2_moe_plain", "qwen3_next_plain",
                                         "gpt_oss_plain"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace wideep::tests
