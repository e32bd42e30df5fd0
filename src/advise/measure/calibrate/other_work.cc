// SPDX-License-Identifier: Apache-2.0
#include "measure/calibrate/other_work.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace wideep::measure {
namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double used_by(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

}  // namespace

OtherWork::Times OtherWork::now() {
  Times times{.own = used_by(RUSAGE_SELF) + used_by(RUSAGE_CHILDREN)};
  std::ifstream stat("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft = 0, steal = 0;
  if (!(stat >> name >> user >> nice >> system >> idle >> waiting >> irq >> soft >> steal)) {
    return times;
  }
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  times.busy = (user + system + irq + soft + steal) / ticks;
  times.all = times.busy + (nice + idle + waiting) / ticks;
  return times;
}

double OtherWork::share() const {
  const Times after = now();
  const double all = after.all - before_.all;
  if (all <= 0.0) return 0.0;
  const double others = (after.busy - before_.busy) - (after.own - before_.own);
  return std::clamp(others / all, 0.0, 1.0);
}

}  // namespace wideep::measure
