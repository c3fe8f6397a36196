// One line of the benchmark's table.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/team.h"
#include "posenc/base/dtype.h"

namespace posenc::bench {

// What is timed side by side for one case. The passes own the memory that they work on.
struct Contest {
  Pass subject;
  Pass copy;                 // libc's memcpy of as many bytes, the unit in which other programs' runs are compared
  std::vector<Pass> memory;  // the memory's roof is the fastest of these
  // The subject's loop on 16 KiB, and how many times more work the subject has; none where nothing but memory limits.
  Pass small;
  double small_share = 0;
  std::string against = "memory";  // what `memory` is
};

struct Case {
  std::string work;  // "rotate", "table", ...
  std::string dtype;
  std::string pairing;  // or what tells cases of this work apart
  size_t head_dim = 0;
  size_t heads = 0;
  size_t bytes = 0;                     // of the result
  std::string variant;                  // empty: what others' programs do as well
  std::map<std::string, size_t> shape;  // more of it, for them
  double goal = 0;
  bool quick = false;  // one of the few that --quick runs
  std::vector<size_t> threads = {1, 2};
  bool own_pool = false;  // has threads of its own, which the spinning ones of a team would disturb
  std::function<Contest(Team&)> prepare;

  std::string Name(size_t on_threads) const;
};

// "f32", "bf16", "f16".
std::string ShortName(DType dtype);

std::vector<Case> RotateCases();
std::vector<Case> TableCases();
std::vector<Case> BiasCases();
std::vector<Case> CallCases();
std::vector<Case> MethodCases();

}  // namespace posenc::bench
