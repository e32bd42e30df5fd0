// SPDX-License-Identifier: Apache-2.0
// A log of commands while members leave and join: every member reads what was written.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <map>
#include <vector>

#include "base/check.h"
#include "engine/command.h"

namespace wideep::engine {
namespace {

bool is_equal(const SharedGrammar& a, const SharedGrammar& b) {
  return a == nullptr || b == nullptr ? a == b : *a == *b;
}

void check_equal(const Command& read, const Command& written) {
  WIDEEP_CHECK(read.kind == written.kind);
  WIDEEP_CHECK_EQ(read.owner, written.owner);
  WIDEEP_CHECK_EQ(read.epoch, written.epoch);
  const Request &a = read.request, &b = written.request;
  WIDEEP_CHECK_EQ(a.index, b.index);
  WIDEEP_CHECK_EQ(a.max_tokens, b.max_tokens);
  WIDEEP_CHECK_EQ(a.draw, b.draw);
  WIDEEP_CHECK(a.answered == b.answered);
  WIDEEP_CHECK_EQ(a.sampling.seed, b.sampling.seed);
  WIDEEP_CHECK_EQ(a.bias.size(), b.bias.size());
  WIDEEP_CHECK_EQ(a.salt, b.salt);
  WIDEEP_CHECK_EQ(a.peer, b.peer);
  WIDEEP_CHECK_EQ(read.ticket, written.ticket);
  WIDEEP_CHECK_EQ(read.num_pages, written.num_pages);
  const bool looks = written.kind == Command::Kind::kLook;
  if (written.kind != Command::Kind::kSubmit && !looks) return;
  WIDEEP_CHECK(a.prompt.ids() == b.prompt.ids());
  if (looks) return;
  WIDEEP_CHECK(is_equal(a.grammar, b.grammar));
  WIDEEP_CHECK(a.rules->allowed == b.rules->allowed);
}

class Requests {
 public:
  explicit Requests(FuzzedDataProvider& data) : data_(data) {
    for (int32_t i = 0; i < 3; ++i) prompts_[i] = std::vector<int32_t>{i, 7};
    for (int32_t i = 1; i < 3; ++i) rules_[i] = TokenRules{.allowed = {i, 7}};
    grammars_[1] = std::make_shared<const std::string>("one");
    grammars_[2] = std::make_shared<const std::string>("two");
  }
  Request next(int index) {
    return {.index = index,
            .prompt = prompts_[choose()],
            .answered = std::vector<int32_t>(data_.ConsumeIntegralInRange<size_t>(0, 3), index),
            .max_tokens = data_.ConsumeIntegral<int>(),
            .sampling = {.seed = data_.ConsumeIntegral<uint64_t>()},
            .grammar = grammars_[choose()],
            .bias = std::vector<TokenBias>(data_.ConsumeIntegralInRange<size_t>(0, 2)),
            .rules = rules_[choose()],
            .draw = index,
            .salt = std::string(data_.ConsumeIntegralInRange<size_t>(0, 2), 's')};
  }

 private:
  size_t choose() { return data_.ConsumeIntegralInRange<size_t>(0, 2); }

  FuzzedDataProvider& data_;
  std::array<SharedTokens, 3> prompts_;
  std::array<SharedGrammar, 3> grammars_;  // the first is none
  std::array<SharedRules, 3> rules_;       // likewise
};

void run(FuzzedDataProvider& data) {
  Requests requests(data);
  CommandEncoder encoder;
  std::map<int, CommandDecoder> members{{0, {}}, {1, {}}};
  std::vector<int> joining;
  for (uint32_t index = 1, epoch = 1; data.remaining_bytes() > 0; ++index) {
    const int rank = data.ConsumeIntegralInRange(0, 3);
    Command command{.owner = rank, .request = {}, .epoch = epoch};
    switch (data.ConsumeIntegralInRange(0, 8)) {
      case 0:
        members.erase(rank);
        continue;
      case 1:
        joining.push_back(rank);
        continue;
      case 2:
        for (const int each : joining) members.try_emplace(each);
        joining.clear();
        command.epoch = ++epoch;
        command.kind = Command::Kind::kMembers;
        break;
      case 3:
        command.kind = Command::Kind::kCancel;
        command.request.index = static_cast<int>(index);
        break;
      case 4:
        command.kind = Command::Kind::kLook;
        command.request = requests.next(static_cast<int>(index));
        command.ticket = index;
        break;
      case 5:
        command.kind = Command::Kind::kOffers;
        command.request.peer = data.ConsumeRandomLengthString(3);
        break;
      default:
        command.request = requests.next(static_cast<int>(index));
    }
    const std::string message = encoder.encode(command);
    for (auto& [member, decoder] : members) check_equal(decoder.decode(message), command);
  }
}

}  // namespace
}  // namespace wideep::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  wideep::engine::run(data);
  return 0;
}
