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
                                       {"ratios", row.ratios},
                                       {"goal", row.goal > 0 ? nlohmann::ordered_json(row.goal) : nullptr},
                                       {"at_least", row.at_least}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

}  // namespace posenc::bench
