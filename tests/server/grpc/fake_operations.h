// Operations for a server under test, which make it wait, fail or answer small known tensors:
//
//   ApplyRotary        answers q and k as they came; fails where the layout is missing
//   GenerateTable      takes `count` milliseconds, or for ever while Gate is shut, asking whether it is cancelled
//   GenerateBias       answers query_length bytes
//   AddBias            throws std::bad_alloc from its job
//   StreamTable        `count` rows of one byte, whose value is the row's
//   Explain            one layer, no tensor
#pragma once

#include <atomic>
#include <cstdint>

#include "posenc/service/operations.h"

namespace posenc::wire {

struct FakeOperations {
  static const Operations& Table();

  static inline std::atomic<bool> gate_shut{false};
  static inline std::atomic<int> waiting{0};            // jobs at the gate
  static inline std::atomic<int> begun{0};              // jobs that ever came to it
  static inline std::atomic<int64_t> held_bytes{0};     // that StreamTable keeps between its tiles
  static inline std::atomic<bool> plan_at_hand{false};  // of ApplyRotary
};

}  // namespace posenc::wire
