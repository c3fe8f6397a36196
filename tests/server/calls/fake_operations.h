// Operations for a server under test: they wait, fail, or answer small known tensors:
//
//   ApplyRotary        returns q and k unchanged, not while `hangs`; fails if the layout is missing
//   GenerateTable      takes `count` milliseconds, or as long as gate_shut, and polls for cancellation
//   GenerateBias       answers query_length bytes
//   AddBias            throws std::bad_alloc from its job
//   StreamTable        `count` rows of one byte, the row number
//   Explain            one layer, no tensor
#pragma once

#include <atomic>
#include <cstdint>

#include "posenc/service/operations.h"

namespace posenc::wire {

struct FakeOperations {
  static const Operations& Table();

  static inline std::atomic<bool> gate_shut{false};
  static inline std::atomic<bool> polls{true};          // jobs at the gate ask whether they should end
  static inline std::atomic<int> waiting{0};            // jobs at the gate now
  static inline std::atomic<int> begun{0};              // jobs that have ever reached it
  static inline std::atomic<int64_t> held_bytes{0};     // that StreamTable keeps between its tiles
  static inline std::atomic<bool> plan_at_hand{false};  // ApplyRotary's plan is cached
  static inline std::atomic<bool> hangs{false};
};

}  // namespace posenc::wire
