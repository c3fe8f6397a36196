#include "bench/wire/row.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace posenc::bench {

void Print(const Row& row) {
  const Interval judged = row.interval.value_or(Interval{row.ratio, row.ratio});
  nlohmann::ordered_json line = {{"case", row.name},
                                 {"posenc", row.subject},
                                 {"against", row.against},
                                 {"other", row.other},
                                 {"unit", row.unit},
                                 {"ratio", row.ratio},
                                 {"goal", row.goal},
                                 {"at_least", row.at_least},
                                 {"met", row.at_least ? judged.low >= row.goal : judged.high <= row.goal}};
  if (row.interval) line["interval"] = {row.interval->low, row.interval->high};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

}  // namespace posenc::bench
