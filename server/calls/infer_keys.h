// Keys of recent calls of the Open Inference Protocol.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/oip/models.h"

namespace posenc::server {

// Key of a recent call: two equal requests with equal keys are prepared in the same way.
struct InferKey {
  std::shared_ptr<const Models::Table> models;
  bool in_stream;
  uint64_t memory_changes;   // NamedMemory::changes()
  std::string memory_scope;  // empty if nothing can be registered

  bool operator==(const InferKey&) const = default;
};

// Gives equal keys the same address. Thread-safe.
class InferKeys {
 public:
  std::shared_ptr<const InferKey> Find(InferKey key) {
    constexpr size_t kMost = 16;  // as many as recent calls
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const auto& one) { return *one == key; });
    if (found != keys_.end()) return *found;
    if (keys_.size() == kMost) keys_.erase(keys_.begin());
    return keys_.emplace_back(std::make_shared<const InferKey>(std::move(key)));
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const InferKey>> keys_;  // oldest first
};

}  // namespace posenc::server
