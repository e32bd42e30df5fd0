// SPDX-License-Identifier: Apache-2.0
//
// prediction_errors [rounds]: calibrates this machine and holds predicted iterations against
// measured ones, in so many rounds (8) of 20 to 30 seconds each. Ends with 1 if goals are missed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "measure/calibrate/other_work.h"
#include "measure/predict/prediction_check.h"

using namespace wideep;           // NOLINT(google-build-using-namespace): a program
using namespace wideep::measure;  // NOLINT(google-build-using-namespace)

namespace {

[[noreturn]] void end(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.message());
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 8;
  auto grid = checked_grid();
  if (!grid.ok()) end(grid.status());
  PredictionCheck check(std::move(grid).value());
  const OtherWork others;
  run::RunView view;
  for (int round = 0; round < rounds; ++round) {
    if (const Status status = check.measure_round(view); !status.ok()) end(status);
  }
  const double busy = others.share();
  const Calibration found = check.calibration();
  fmt::print("{}", hardware_text(found.hardware));
  fmt::print("constants fit {:.1f} % of experts, {:.1f} % of the other parts\n",
             100 * found.errors.experts, 100 * found.errors.dense);
  const std::vector<CheckedCell> cells = check.judge(found.hardware);
  for (const CheckedCell& cell : cells) fmt::print("{}\n", text_of(cell));
  fmt::print("{}; others used {:.0f} % of the processors\n",
             text_of(summarize(cells), cells.size()), 100 * busy);
  const std::vector<std::string> lines = missed(cells);
  for (const std::string& line : lines) fmt::print("missed: {}\n", line);
  return lines.empty() ? 0 : 1;
}
