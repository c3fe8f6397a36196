#include "bench/wire/row.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace posenc::bench {

void Print(const Row& row) {
  const nlohmann::ordered_json line = {{"case", row.name},
                                       {"posenc", row.subject},
                                       {"against", row.against},
                                       {"other", row.other},
                                       {"unit", row.unit},
                                       {"ratio", row.ratio},
                                       {"goal", row.goal},
                                       {"at_least", row.at_least},
                                       {"met", row.at_least ? row.ratio >= row.goal : row.ratio <= row.goal}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

}  // namespace posenc::bench
