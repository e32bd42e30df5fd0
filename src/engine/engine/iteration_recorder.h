// SPDX-License-Identifier: Apache-2.0
//
// Records what an iteration does on this rank: the counts of every MoE layer and the processor time
// on the critical path (engine/iteration_record.h). It forwards the counts to the online balancer
// and to the reporter.
//
// Thread safety: one thread, that of the engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/iteration_record.h"
#include "engine/online_layers.h"
#include "engine/reporter.h"
#include "engine/speculation/speculation.h"
#include "model/model.h"

namespace wideep::engine {

class IterationRecorder : public model::MoeObserver {
 public:
  // online: null without online balancing. dispatch_ranks: the ranks of the stage that dispatch
  // rows to each other. first_prediction_layer: the number of the model's other layers. All
  // references outlive the recorder.
  IterationRecorder(const model::Model& model, model::Compute compute, transport::Endpoint& stage,
                    ep::TokenRange dispatch_ranks, int first_prediction_layer, OnlineLayers* online,
                    Reporter& reporter)
      : model_(model),
        compute_(compute),
        stage_(stage),
        dispatch_ranks_(dispatch_ranks),
        first_prediction_layer_(first_prediction_layer),
        online_(online),
        reporter_(reporter) {}

  // Which also gets the counts if its draft lengths are adaptive.
  void set_speculation(Speculation* speculation) { speculation_ = speculation; }

  // [tokens of the batch] the sequence of each token, and its position there; valid until end().
  void begin(int64_t iteration, std::span<Sequence* const> owners,
             std::span<const int32_t> positions);
  void on_layer(const model::MoeLayerRecord& layer) override;
  // The next layer is a pass of a prediction layer; the passes of one are recorded and reported
  // together. owners: as in begin(); null for a row of no sequence.
  void begin_pass(std::span<Sequence* const> owners) { owners_ = owners; }
  // Completes the record; the engine may add to it and move it away.
  IterationRecord& end();
  // Of the layers so far: rows that this rank's experts have computed.
  int64_t experts_rows() const { return experts_rows_; }
  int64_t experts_cpu_ns() const;

 private:
  int64_t busy_cpu_ns() const;
  void count(const model::MoeLayerRecord& layer);
  void hold(const ChosenExperts& chosen);
  void report_held();

  const model::Model& model_;
  model::Compute compute_;
  transport::Endpoint& stage_;
  ep::TokenRange dispatch_ranks_;
  int first_prediction_layer_;
  OnlineLayers* online_;
  Reporter& reporter_;
  Speculation* speculation_ = nullptr;

  IterationRecord record_;
  std::span<Sequence* const> owners_;
  std::span<const int32_t> positions_;
  // What the passes of a prediction layer have chosen so far, for one report.
  struct Held {
    int layer = -1;  // −1: nothing is held
    std::vector<int32_t> experts, counts, group_counts;
    std::vector<Sequence*> owners;
  };
  Held held_;
  int64_t experts_rows_ = 0;
  int64_t start_ns_ = 0;
  int64_t last_mark_cpu_ns_ = 0;  // busy_cpu_ns() at the end of the last layer
};

}  // namespace wideep::engine
