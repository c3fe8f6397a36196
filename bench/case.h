// A benchmark case: one line of the result table.
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

// Passes that are timed side by side for one case. The passes own the memory that they work on.
struct Contest {
  Pass subject;
  Pass copy;                 // libc memcpy of as many bytes: the unit to compare other programs' runs in
  std::vector<Pass> memory;  // the fastest of these is the memory roof
  // The subject's loop on 16 KiB, and the subject's work per thread as a multiple of it. Null if only memory limits the
  // subject.
  Pass small;
  double small_share = 0;
  std::string against = "memory";  // name of the passes in `memory`
};

struct Case {
  std::string work;  // "rotate", "table", ...
  std::string dtype;
  std::string pairing;  // or another name that distinguishes cases of this work
  size_t head_dim = 0;
  size_t heads = 0;
  size_t bytes = 0;                     // size of the result
  std::string variant;                  // empty: other programs can run this case too
  std::map<std::string, size_t> shape;  // more dimensions, for other programs
  double goal = 0;
  bool quick = false;  // included in --quick
  std::vector<size_t> threads = {1, 2};
  bool own_pool = false;  // has its own threads, which a team's spinning threads would disturb
  std::function<Contest(Team&)> prepare;

  std::string Name(size_t on_threads) const;
};

// Returns "f32", "bf16", "f16".
std::string ShortName(DType dtype);

std::vector<Case> RotateCases();
std::vector<Case> TableCases();
std::vector<Case> BiasCases();
std::vector<Case> CallCases();
std::vector<Case> MethodCases();

}  // namespace posenc::bench
