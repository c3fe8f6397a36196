// Pace of the TLS handshakes of each peer, where clients may show certificates.
//
// OpenSSL parses all certificates of a client before it refuses one, on the thread that serves calls: 8 KiB of them,
// the most that the server accepts, can take 24 milliseconds. So a peer may begin only so many handshakes a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <unordered_map>

#include "server/listen/connections.h"

namespace posenc::server {

// Not thread-safe.
class HandshakePace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr double kSavedSeconds = 2;

  // `per_second`: handshakes of a peer. Those of kSavedSeconds may begin at once. 0: no limit.
  explicit HandshakePace(int64_t per_second) : per_second_(static_cast<double>(per_second)) {}

  // Returns true if a connection of the peer may begin its handshake, and counts it.
  bool Begin(Peer peer, Clock::time_point now = Clock::now());

 private:
  struct Begun {
    double number = 0;  // handshakes, less those that time allows
    Clock::time_point since;
  };
  double NumberAt(const Begun& begun, Clock::time_point now) const;

  const double per_second_;
  std::unordered_map<Peer, Begun> of_peer_;
};

}  // namespace posenc::server
