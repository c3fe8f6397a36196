#include "tools/load/doubts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace posenc::load {
namespace {

constexpr double kShortest = 0.1;  // seconds; shorter steps do not show how busy a thread is
constexpr double kBusy = 0.9;      // share of a processor; a busier thread limits the rate
constexpr double kHeld = 0.99;     // share of the requested rate
constexpr double kLateUs = 1000;   // start delay (p99) that is tolerated without a warning
constexpr int64_t kLeastWaits = 10;
constexpr int64_t kStreams = 100;  // concurrent calls per connection that servers accept by default

}  // namespace

void AddDoubts(const ClientState& client, Results* results) {
  const Step& step = results->steps[0];
  const auto add = [&](const std::string& doubt) { results->warnings.push_back(absl::StrCat(step.name, ": ", doubt)); };
  if (client.busiest_thread > kBusy && step.seconds >= kShortest) {
    add(absl::StrFormat("the client itself was saturated: one of its threads used %.0f %% of a processor",
                        100 * client.busiest_thread));
  }
  if (client.offered < kHeld) {
    add(absl::StrFormat("the client offered only %.1f %% of the requested rate", 100 * client.offered));
  }
  const double late = results->late_starts_p99_us;
  if (late > kLateUs && late > 0.1 * static_cast<double>(step.measured.latency.Percentile(99))) {
    add(absl::StrFormat(
        "1 %% of the calls started %.1f ms late or more: that part of the latency comes from the client", 1e-3 * late));
  }
  if (client.abandoned > 0) {
    add(absl::StrCat("counted as DEADLINE_EXCEEDED: ", client.abandoned, client.abandoned == 1 ? " call" : " calls",
                     " that did not end at the deadline, because the server does not read their bytes"));
  }
  const Histogram& wait = step.measured.send_wait;
  if (wait.Percentile(50) > kLateUs && wait.Count() >= kLeastWaits) {
    add(absl::StrFormat(
        "half of the calls waited %.1f ms or more in the client's own gRPC before they were sent, 1 %% %.1f "
        "ms or more: that part of the service time is neither the server's nor the network's",
        1e-3 * static_cast<double>(wait.Percentile(50)), 1e-3 * static_cast<double>(wait.Percentile(99))));
  }
  if (client.most_in_flight > kStreams * client.connections) {
    add(absl::StrCat(client.most_in_flight, " calls were in flight over ", client.connections,
                     client.connections == 1 ? " connection" : " connections", ", but servers accept ", kStreams,
                     " per connection by default: the rest waited in the client; use more --connections"));
  }
}

}  // namespace posenc::load
