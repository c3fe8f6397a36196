// Metrics of the server's state, read at each scrape: what GetServerInfo answers, and the process's resources.
#pragma once

#include <functional>
#include <vector>

#include "posenc/v1/service.pb.h"
#include "prometheus/collectable.h"

namespace posenc::server {

class StateMetrics final : public prometheus::Collectable {
 public:
  // Fills the server's present state; `serving` is its health. Called at each scrape, from any thread.
  using Read = std::function<void(v1::GetServerInfoResponse* state, bool* serving)>;

  explicit StateMetrics(Read read) : read_(std::move(read)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Read read_;
};

}  // namespace posenc::server
