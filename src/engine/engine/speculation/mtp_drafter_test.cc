// SPDX-License-Identifier: Apache-2.0
//
// Drafts of prediction layers against transformers', over steps that verify right and wrong drafts:
// tests/golden/README.md describes the files of tests/golden/prediction_models.
#include "engine/speculation/mtp_drafter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <random>

#include "model/golden_testing.h"

namespace wideep::engine {
namespace {

using model::GoldenRank;
using model::values;

constexpr int kDrafts = 3;

struct NoReports : Reporter {
  void begin_iteration(int64_t) override {}
  void chosen(const ChosenExperts& layer) override {
    EXPECT_EQ(layer.experts.size() % std::max<size_t>(layer.owners.size(), 1), 0u);
    for (const Sequence* owner : layer.owners) EXPECT_NE(owner, nullptr);
    layers.push_back(layer.layer);
  }
  Status token(const SampledToken&) override { return {}; }
  Status prompt(const PromptProgress&) override { return {}; }
  Status end_iteration(IterationRecord) override { return {}; }
  Status ended(int) override { return {}; }
  Status pages_changed(std::vector<PageChange>) override { return {}; }
  Status idle() override { return {}; }
  void report_when_idle() override {}
  Status record_experts(bool, int) override { return {}; }
  Status prefers(Role, int) override { return {}; }

  std::vector<int> layers;
};

// A text of the golden file, on its way through the steps.
struct Text {
  std::vector<int32_t> ids;     // all of it
  std::vector<int32_t> drafts;  // [ids − 1, kDrafts] after each row; −1: not known
  Sequence sequence;
  std::deque<base::AlignedBytes> pages;
  std::vector<int32_t> yielded;

  bool is_done() const { return sequence.tokens.size() + kDrafts + 1 >= ids.size(); }
};

class MtpDrafts : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string dir = WIDEEP_SOURCE_DIR "/tests/golden/prediction_models/" + GetParam();
    const auto golden = tensor_files::SafetensorsFile::open(dir + "/golden.safetensors");
    const auto config = model::read_model_config(dir);
    ASSERT_TRUE(golden.ok() && config.ok());
    num_layers_ = config->num_mtp_layers;
    const kernels::Kernels* kernels = kernels::select_kernels(nullptr).value();
    auto rank = GoldenRank::create(dir, *kernels, {kernels::WeightFormat::kF32}, 256, num_layers_);
    ASSERT_TRUE(rank.ok()) << rank.status().message();
    rank_ = std::move(*rank);
    for (int p = 0; golden->find(fmt::format("p{}.ids", p)) != nullptr; ++p) {
      Text& text = texts_.emplace_back();
      text.ids = values<int32_t>(*golden, fmt::format("p{}.ids", p));
      text.drafts = values<int32_t>(*golden, fmt::format("p{}.drafts", p));
      const int length = values<int32_t>(*golden, fmt::format("p{}.prompt_length", p)).front();
      const std::vector<int32_t> prompt(text.ids.begin(), text.ids.begin() + length);
      text.sequence.request = {.index = p, .prompt = prompt, .max_tokens = 1000};
      text.sequence.tokens = prompt;
      for (size_t at = 0; at < text.ids.size() + 2 * kDrafts; at += kernels::kPageTokens) {
        text.pages.emplace_back(rank_->kv().page_bytes());
        text.sequence.pages.push_back(text.pages.back().data());
      }
    }
    reporter_ = std::make_unique<NoReports>();
    recorder_ = std::make_unique<IterationRecorder>(rank_->model(), rank_->compute(),
                                                    rank_->endpoint(), ep::TokenRange{0, 1},
                                                    config->num_layers, nullptr, *reporter_);
    rank_->moe().set_observer(recorder_.get());
    drafter_ = std::make_unique<MtpDrafter>(rank_->model(), rank_->kv(), *recorder_, num_layers_,
                                            static_cast<int>(texts_.size()));
  }

  // Rows [begin, end) of the text, the last ones drafts, of which the first `right` are right.
  void add_rows(Text& text, int begin, int end, int right) {
    model::Batch& batch = step_.batch;
    const int last = static_cast<int>(text.sequence.tokens.size()) - 1;
    const int64_t vocab = rank_->config().vocab_size;
    for (int place = begin; place < end; ++place) {
      const int32_t id = text.ids[static_cast<size_t>(place)];
      if (place >= last) batch.logit_rows.push_back(batch.num_tokens());
      batch.ids.push_back(place <= last + right ? id : static_cast<int32_t>((id + 1) % vocab));
      batch.positions.push_back(place);
      batch.prompt_lengths.push_back(text.sequence.prompt_length());
      batch.pages.push_back(&text.sequence.pages);
      step_.owners.push_back(&text.sequence);
    }
    if (end <= last) return;
    step_.sampled.push_back(&text.sequence);
    step_.first_row.push_back(static_cast<int32_t>(batch.logit_rows.size()));
    const auto from = text.ids.begin() + last + 1;
    text.yielded.assign(from, from + right + 1);
    yielded_.push_back({.tokens = text.yielded, .drafts = kDrafts});
    stepped_.push_back(&text);
  }

  void run_step() {
    recorder_->begin(iteration_, step_.owners, step_.batch.positions);
    std::vector<float> logits;
    ASSERT_TRUE(rank_->model().forward(step_.batch, rank_->kv(), iteration_, &logits).ok());
    const MtpDrafter::Passes passes{.length = kDrafts,
                                    .rows = drafter_->rows_for(step_),
                                    .rows_of_ranks = {drafter_->rows_for(step_)}};
    ASSERT_TRUE(drafter_->draft(step_, yielded_, passes, iteration_).ok());
    const IterationRecord& record = recorder_->end();
    EXPECT_EQ(static_cast<int>(record.layers.size()),
              rank_->config().num_moe_layers());  // passes of a layer are one record
    ++iteration_;
    for (size_t i = 0; i < stepped_.size(); ++i) {
      Text& text = *stepped_[i];
      text.sequence.tokens.insert(text.sequence.tokens.end(), text.yielded.begin(),
                                  text.yielded.end());
      const size_t row = text.sequence.tokens.size() - 2;
      const auto expected = std::span(text.drafts).subspan(row * kDrafts, kDrafts);
      for (size_t k = 0; k < kDrafts && expected[k] >= 0; ++k) {
        ASSERT_EQ(drafter_->drafts()[i][k], expected[k])
            << "text " << text.sequence.request.index << ", row " << row << ", draft " << k;
        ++compared_;
      }
    }
    step_.batch.clear();
    step_.owners.clear();
    step_.sampled.clear();
    step_.first_row = {0};
    yielded_.clear();
    stepped_.clear();
  }

  int num_layers_ = 0;
  std::unique_ptr<GoldenRank> rank_;
  std::deque<Text> texts_;
  std::unique_ptr<NoReports> reporter_;
  std::unique_ptr<IterationRecorder> recorder_;
  std::unique_ptr<MtpDrafter> drafter_;
  Scheduler::Step step_{.first_row = {0}};
  std::vector<MtpDrafter::Yielded> yielded_;
  std::vector<Text*> stepped_;
  int64_t iteration_ = 0;
  int compared_ = 0;
};

std::vector<std::string> predicting_models() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(WIDEEP_SOURCE_DIR "/tests/golden/prediction_models")) {
    const auto config = model::read_model_config(entry.path());
    if (config.ok() && !config->has_state()) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, MtpDrafts, testing::ValuesIn(predicting_models()),
                         [](const auto& test) { return test.param; });

// Prompts in chunks, several texts in a step, and drafts that are right and wrong at every place:
// what wrong ones leave in the cache is not seen.
TEST_P(MtpDrafts, AreTransformersWhateverWasVerified) {
  std::mt19937 rng(3);
  for (const int chunk : {5, 14, 100}) {
    for (Text& text : texts_) {
      const auto computed = static_cast<int>(text.sequence.num_computed);
      const int end = std::min(computed + chunk, text.sequence.prompt_length());
      if (computed == end) continue;
      add_rows(text, computed, end, 0);
      text.sequence.num_computed = end;
    }
    run_step();
    if (HasFatalFailure()) return;
  }
  while (!std::ranges::all_of(texts_, &Text::is_done)) {
    for (Text& text : texts_) {
      if (text.is_done() || rng() % 4 == 0) continue;  // sits out
      const auto last = static_cast<int>(text.sequence.tokens.size()) - 1;
      const int drafts = static_cast<int>(rng() % (kDrafts + 1));
      add_rows(text, last, last + 1 + drafts, static_cast<int>(rng() % (drafts + 1u)));
    }
    if (step_.owners.empty()) continue;
    run_step();
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(compared_, 20);
}

}  // namespace
}  // namespace wideep::engine
